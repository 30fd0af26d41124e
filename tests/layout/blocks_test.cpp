// A model as a list of blocks.
#include "colonnade/layout/blocks.h"

#include <gmock/gmock.h>

namespace colonnade::layout {
namespace {

using ::testing::ElementsAre;
using K = BlockKind;

TEST(Blocks, AreEmbeddingLayersNormMtpLayersAndHeadInOrder) {
  config::Model m;
  m.num_layers = 2;
  m.mtp_num_layers = 2;
  EXPECT_THAT(model_blocks(m),
              ElementsAre(BlockId{K::kEmbedding}, BlockId{K::kLayer, 0}, BlockId{K::kLayer, 1},
                          BlockId{K::kFinalNorm}, BlockId{K::kMtpLayer, 0}, BlockId{K::kMtpLayer, 1},
                          BlockId{K::kHead}));
  m.mtp_num_layers = 0;
  m.encoder_num_layers = 1;
  EXPECT_THAT(model_blocks(m),
              ElementsAre(BlockId{K::kEmbedding}, BlockId{K::kLayer, 0}, BlockId{K::kLayer, 1},
                          BlockId{K::kLayer, 2}, BlockId{K::kFinalNorm}, BlockId{K::kHead}));
}

TEST(Blocks, OfAStageKnowTheirLayers) {
  const StageBlocks stage{{{K::kEmbedding}, {K::kLayer, 3}, {K::kLayer, 4}, {K::kHead}}};
  EXPECT_TRUE(stage.has(K::kEmbedding) && stage.has(K::kLayer) && stage.has(K::kHead));
  EXPECT_FALSE(stage.has(K::kFinalNorm) || stage.has(K::kMtpLayer));
  std::vector<std::int64_t> layers;
  for (const std::int64_t layer : stage.layers()) layers.push_back(layer);
  EXPECT_THAT(layers, ElementsAre(3, 4));
  EXPECT_EQ(stage.layers().size(), 2);
  EXPECT_EQ(StageBlocks{}.layers().size(), 0);
  EXPECT_TRUE(StageBlocks{}.empty());
  EXPECT_THAT(stage_of_layers({3, 5}).blocks, ElementsAre(BlockId{K::kLayer, 3}, BlockId{K::kLayer, 4}));
}

}  // namespace
}  // namespace colonnade::layout
