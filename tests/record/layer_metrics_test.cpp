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

/// Numbers and tags are Megatron's: 0-based, MTP layers after the model's 12.
TEST(LayerMetrics, HasTheLossesOfEachLayer) {
  EXPECT_THAT(layer_losses({{"lm_loss", 5}, {"z_loss", 2}}, 12), ElementsAre());
  const auto losses =
      layer_losses({{"lm_loss", 5},
                    {"z_loss", 2},
                    {"layer_loss/z_loss/decoder.layers.10.mlp.router.weight", 1},
                    {"layer_loss/z_loss/decoder.layers.9.mlp.router.weight", 2},
                    {"layer_loss/z_loss/mtp.layers.0.transformer_layer.mlp.router.weight", 3},
                    {"layer_loss/load_balancing_loss/decoder.layers.10.mlp.router.weight", 4}},
                   12);
  EXPECT_THAT(losses, ElementsAre(Pair("load_balancing_loss", ElementsAre(Pair(10, 4))),
                                  Pair("z_loss", ElementsAre(Pair(9, 2), Pair(10, 1), Pair(12, 3)))));
  EXPECT_EQ(event_tag(losses[1], 12), "moe/z_loss_layer_12");
  EXPECT_TRUE(is_layer_loss("layer_loss/z_loss/decoder.layers.10.mlp.router.weight"));
  EXPECT_FALSE(is_layer_loss("z_loss"));
}

}  // namespace
}  // namespace colonnade::record
