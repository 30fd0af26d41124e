// FLOPs against values computed with Megatron's own function.
#include "colonnade/plan/flops.h"

#include <gtest/gtest.h>

#include "plan/presets.h"

namespace colonnade::plan {
namespace {

TEST(Flops, AreMegatrons) {
  EXPECT_DOUBLE_EQ(training_flops(test::llama3_8b(), 8192, 128, 1), 5.397062776101274e16);
  EXPECT_DOUBLE_EQ(training_flops(test::gpt3_175b(), 2048, 1536, 8), 3.3405978001601987e18);
}

TEST(Flops, TheVocabularyIsFilledForTheTensorRanks) {
  EXPECT_EQ(padded_vocab_size(test::gpt2_124m(), 1), 50304);
  EXPECT_EQ(padded_vocab_size(test::gpt2_124m(), 8), 51200);
}

}  // namespace
}  // namespace colonnade::plan
