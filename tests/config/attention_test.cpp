// Sizes and rotary embedding of self-attention.
#include "colonnade/config/attention.h"

#include <gmock/gmock.h>

namespace colonnade::config {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

config::Run small() {
  config::Run r;
  r.model.hidden_size = 64;
  r.model.num_attention_heads = 4;
  return r;
}

TEST(Attention, HeadsShareTheHiddenSizeAndHaveTheirOwnKeys) {
  config::Run r = small();
  derive_attention(r);
  EXPECT_EQ(r.model.kv_channels, 16);
  EXPECT_EQ(r.model.num_query_groups, 4);
  r.model.kv_channels = 8;
  r.model.num_query_groups = 2;
  derive_attention(r);
  EXPECT_EQ(r.model.kv_channels, 8) << "given";
  EXPECT_EQ(r.model.num_query_groups, 2) << "given";
}

TEST(Attention, RotaryOfStandardAttentionFollowsThePositionEmbedding) {
  Model m = small().model;
  m.kv_channels = 16;
  for (const bool interleaved : {false, true}) {
    m.rotary_interleaved = interleaved;
    EXPECT_TRUE(rotary_of(m).from_position_embedding);
    EXPECT_EQ(rotary_of(m).channels, 16);
    EXPECT_EQ(rotary_of(m).interleaved, interleaved);
  }
}

TEST(Attention, RotaryOfMultiLatentAttentionIsItsOwn) {
  Model m = small().model;
  m.latent = {.enabled = true, .qk_head_dim = 24, .qk_pos_emb_head_dim = 8};
  EXPECT_FALSE(rotary_of(m).from_position_embedding);
  EXPECT_EQ(rotary_of(m).channels, 8);
  EXPECT_TRUE(rotary_of(m).interleaved);
}

TEST(Attention, MultiLatentAttentionDefaultsToYarn) {
  for (const PositionEmbedding positions :
       {PositionEmbedding::kLearnedAbsolute, PositionEmbedding::kRope, PositionEmbedding::kNone}) {
    config::Run r = small();
    r.model.position_embedding = positions;
    derive_attention(r);
    EXPECT_FALSE(r.model.rope_type) << "not used by other attention";
    r.model.latent.enabled = true;
    derive_attention(r);
    EXPECT_EQ(r.model.rope_type, RopeType::kYarn);
    EXPECT_TRUE(r.model.uses_yarn());
    r.model.rope_type = RopeType::kRope;
    derive_attention(r);
    EXPECT_EQ(r.model.rotary_embedding(), RopeType::kRope);
  }
}

TEST(Attention, MultiLatentAttentionHasItsOwnHeadSize) {
  config::Run r = small();
  r.model.latent = {.enabled = true, .qk_head_dim = 24, .qk_pos_emb_head_dim = 8};
  derive_attention(r);
  EXPECT_EQ(r.model.kv_channels, 32);
  EXPECT_THAT(r.notes, IsEmpty());
  r.model.kv_channels = 128;
  derive_attention(r);
  EXPECT_EQ(r.model.kv_channels, 32);
  EXPECT_THAT(r.notes,
              ElementsAre("--kv-channels: has no effect with --multi-latent-attention: the head size is "
                          "--qk-head-dim + --qk-pos-emb-head-dim = 32; got 128"));
}

}  // namespace
}  // namespace colonnade::config
