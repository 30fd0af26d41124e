// Load balance of experts from the counts of a step.
#include "colonnade/record/layer_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace colonnade::record {
namespace {

using testing::ElementsAre;
using testing::Pair;

TEST(LayerMetrics, HasOneNumberPerLayerInOrder) {
  EXPECT_THAT(layer_metrics({}), ElementsAre());
  const std::map<std::string, std::vector<double>> counts{
      {"expert_tokens/decoder.layers.10.mlp.router.weight", {0, 4, 2, 2}},
      {"expert_tokens/decoder.layers.9.mlp.router.weight", {3, 3, 3, 3}},
      {"expert_tokens/mtp.layers.0.router.weight", {5, 1, 1, 1}}};
  EXPECT_THAT(layer_metrics(counts), ElementsAre(Pair("expert_balance", ElementsAre(1, 2, 2.5)),
                                                 Pair("expert_least", ElementsAre(1, 0, 0.5))));
  EXPECT_THAT(
      layer_counts(counts),
      ElementsAre(Pair("tokens_per_expert", ElementsAre(ElementsAre(3, 3, 3, 3), ElementsAre(0, 4, 2, 2),
                                                        ElementsAre(5, 1, 1, 1)))));
  EXPECT_THAT(layer_counts({}), ElementsAre());
}

TEST(LayerMetrics, ReportsTheShareOfDroppedTokens) {
  const std::map<std::string, std::vector<double>> counts{
      {"expert_tokens/decoder.layers.0.mlp.router.weight", {6, 2}},
      {"kept_tokens/decoder.layers.0.mlp.router.weight", {4, 2}}};
  EXPECT_THAT(layer_metrics(counts),
              ElementsAre(Pair("expert_balance", ElementsAre(1.5)), Pair("expert_least", ElementsAre(0.5)),
                          Pair("dropped_tokens", ElementsAre(0.25))));
}

}  // namespace
}  // namespace colonnade::record
