// Tokens of each context rank, and communication types of layers.
#include "colonnade/layout/context_parallel.h"

#include <gtest/gtest.h>

#include "colonnade/base/error.h"

namespace colonnade::layout {
namespace {

using Chunks = std::vector<TokenSpan>;

// Megatron's get_batch_on_this_cp_rank views a sequence as 2 cp chunks and selects r and 2 cp - 1 - r.
TEST(ContextParallel, RanksHoldAnEarlyAndALateChunk) {
  EXPECT_EQ(context_chunks(16, 0, 2), (Chunks{{0, 4}, {12, 4}}));
  EXPECT_EQ(context_chunks(16, 1, 2), (Chunks{{4, 4}, {8, 4}}));
  EXPECT_EQ(context_chunks(24, 2, 4), (Chunks{{6, 3}, {15, 3}}));
  EXPECT_EQ(context_chunks(7, 0, 1), (Chunks{{0, 7}}));
  EXPECT_THROW(context_chunks(18, 0, 4), Error);
  EXPECT_THROW(context_chunks(16, 2, 2), Error);
}

TEST(ContextParallel, TensorRanksShardTheTokensOfAContextRank) {
  EXPECT_EQ((SequenceShard{.part = 1, .parts = 2}.chunks(8)), (Chunks{{4, 4}}));
  const auto part = [](int tensor, int of) {
    return SequenceShard{.context = 0, .contexts = 2, .part = tensor, .parts = of}.chunks(24);
  };
  EXPECT_EQ(part(0, 2), (Chunks{{0, 6}}));
  EXPECT_EQ(part(1, 2), (Chunks{{18, 6}}));
  EXPECT_EQ(part(0, 3), (Chunks{{0, 4}}));
  EXPECT_EQ(part(1, 3), (Chunks{{4, 2}, {18, 2}}));
  EXPECT_EQ(part(2, 3), (Chunks{{20, 4}}));
}

TEST(ContextParallel, EveryTokenIsHeldOnce) {
  for (const int contexts : {1, 2, 4})
    for (const int parts : {1, 2, 3}) {
      std::vector<int> held(48, 0);
      for (int context = 0; context < contexts; ++context)
        for (int part = 0; part < parts; ++part)
          for (const TokenSpan& chunk : SequenceShard{context, contexts, part, parts}.chunks(48))
            for (std::int64_t i = 0; i < chunk.length; ++i) ++held[static_cast<std::size_t>(chunk.begin + i)];
      EXPECT_EQ(held, std::vector<int>(48, 1)) << contexts << " x " << parts;
    }
}

TEST(ContextParallel, LayersFollowCpCommType) {
  config::Parallel p;
  p.context_parallel_size = 8;
  p.hierarchical_context_parallel_sizes = {4, 2};
  const auto layer = [&](std::int64_t i) {
    const LayerContextParallel l = context_layer(p, i);
    return std::array<int, 3>{l.heads, l.ring, l.gathers ? 1 : 0};
  };
  EXPECT_EQ(layer(5), (std::array{1, 8, 0}));
  p.cp_comm_type = {"a2a", "all_gather", "a2a+p2p", "p2p"};
  EXPECT_EQ(layer(0), (std::array{8, 1, 0}));
  EXPECT_EQ(layer(1), (std::array{1, 8, 1}));
  EXPECT_EQ(layer(2), (std::array{4, 2, 0}));
  EXPECT_EQ(layer(3), (std::array{1, 8, 0}));
}

}  // namespace
}  // namespace colonnade::layout
