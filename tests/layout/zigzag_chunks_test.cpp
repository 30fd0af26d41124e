// Zigzag chunks: which tokens of a sequence each context and tensor rank holds.
#include "colonnade/layout/zigzag_chunks.h"

#include <gmock/gmock.h>

#include "colonnade/base/error.h"

namespace colonnade::layout {
namespace {

using Chunks = std::vector<TokenSpan>;

// Megatron's get_batch_on_this_cp_rank views a sequence as 2 cp chunks and selects r and 2 cp - 1 - r.
TEST(ZigzagChunks, RanksHoldAnEarlyAndALateChunk) {
  EXPECT_EQ(context_chunks(16, 0, 2), (Chunks{{0, 4}, {12, 4}}));
  EXPECT_EQ(context_chunks(16, 1, 2), (Chunks{{4, 4}, {8, 4}}));
  EXPECT_EQ(context_chunks(24, 2, 4), (Chunks{{6, 3}, {15, 3}}));
  EXPECT_EQ(context_chunks(7, 0, 1), (Chunks{{0, 7}}));
  EXPECT_THROW(context_chunks(18, 0, 4), Error);
  EXPECT_THROW(context_chunks(16, 2, 2), Error);
}

TEST(ZigzagChunks, TensorRanksShardTheTokensOfAContextRank) {
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

TEST(ZigzagChunks, EveryTokenIsHeldOnce) {
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

}  // namespace
}  // namespace colonnade::layout
