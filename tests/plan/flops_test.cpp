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

TEST(Flops, OfAWindowAreThoseOfTheKeysInIt) {
  config::Model m = test::llama3_8b();
  const auto attention = [&](std::int64_t length) {
    return training_flops_by_part(m, length, 1, 1).attention;
  };
  const double full = attention(4096);
  m.window_size = 4095;  // as many keys as there are
  EXPECT_DOUBLE_EQ(attention(4096), full);
  m.window_size = 1023;
  EXPECT_DOUBLE_EQ(attention(4096), full * (0.5 - 0.0625));  // a strip of 1/4 without its corner
  m.window_attn_skip_freq = "4";
  EXPECT_DOUBLE_EQ(attention(4096), full * (0.75 * 0.4375 + 0.25));
}

TEST(Flops, OfDeepSeekV3AreMegatrons) {
  config::Model m = test::deepseek_v3();
  m.mtp_num_layers = 1;
  EXPECT_DOUBLE_EQ(training_flops(m, 4096, 1, 1), 1064931126411264.0);
}

TEST(Flops, TheVocabularyIsFilledForTheTensorRanks) {
  EXPECT_EQ(padded_vocab_size(test::gpt2_124m(), 1), 50304);
  EXPECT_EQ(padded_vocab_size(test::gpt2_124m(), 8), 51200);
}

}  // namespace
}  // namespace colonnade::plan
