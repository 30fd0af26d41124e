// FLOPs against values computed with Megatron's own function.
#include "colonnade/cost/flops.h"

#include <gtest/gtest.h>

#include "support/presets.h"

namespace colonnade::cost {
namespace {

TEST(Flops, MatchMegatron) {
  EXPECT_DOUBLE_EQ(training_flops(test::llama3_8b(), 8192, 128, 1), 5.397062776101274e16);
  EXPECT_DOUBLE_EQ(training_flops(test::gpt3_175b(), 2048, 1536, 8), 3.3405978001601987e18);
}

TEST(Flops, CountOnlyKeysInsideASlidingWindow) {
  config::Model m = test::llama3_8b();
  const auto attention = [&](std::int64_t length) {
    return training_flops_by_part(m, length, 1, 1).attention;
  };
  const double full = attention(4096);
  m.window_size = 4095;  // covers all keys
  EXPECT_DOUBLE_EQ(attention(4096), full);
  m.window_size = 1023;
  EXPECT_DOUBLE_EQ(attention(4096), full * (0.5 - 0.0625));  // a strip of 1/4 without its corner
  m.window_attn_skip_freq = "4";
  EXPECT_DOUBLE_EQ(attention(4096), full * (0.75 * 0.4375 + 0.25));
}

TEST(Flops, MatchMegatronForDeepSeekV3) {
  config::Model m = test::deepseek_v3();
  m.mtp_num_layers = 1;
  EXPECT_DOUBLE_EQ(training_flops(m, 4096, 1, 1), 1064931126411264.0);
}

// Multiply-adds of the forward pass of one sample by hand: 5 encoder and 7 decoder tokens.
TEST(Flops, OfEncoderAndDecoderByHand) {
  config::Model m;
  m.encoder_num_layers = 2;
  m.num_layers = 3;
  m.hidden_size = 8;
  m.ffn_hidden_size = 10;
  m.num_attention_heads = m.num_query_groups = 2;
  m.kv_channels = 3;
  m.vocab_size = m.make_vocab_size_divisible_by = 16;
  m.activation = config::Activation::kGeluTanh;
  const double encoder = 5 * (4 * 8 * 6) + 5 * (2 * 8 * 10);  // q, k, v and output projections, the MLP
  const double decoder = 7 * (4 * 8 * 6) + 7 * (2 * 8 * 10)   // the same for 7 tokens
                         + 7 * (8 * 6) + 5 * (2 * 8 * 6) +
                         7 * (6 * 8);   // q of 7 tokens, k and v of 5, output of 7
  const double seen = 2 * (5 * 5 * 6);  // full QK^T and PV
  const double causal = 2 * (7 * 7 * 6) / 2.0,
               crossed = 2 * (7 * 5 * 6);  // half of them; all of the encoder's keys
  const double operations = 2 * 3 * 4;     // FLOPs per multiply-add, passes, samples
  const TrainingFlops flops = training_flops_by_part(m, SampleLength({5, 7}), 4, 1);
  EXPECT_DOUBLE_EQ(flops.linears, operations * (2 * encoder + 3 * decoder + 7 * 8 * 16));
  EXPECT_DOUBLE_EQ(flops.attention, operations * (2 * seen + 3 * (causal + crossed)));
  EXPECT_DOUBLE_EQ(flops.norms, 0);
}

TEST(Flops, PadTheVocabularyForTensorParallelism) {
  EXPECT_EQ(padded_vocab_size(test::gpt2_124m(), 1), 50304);
  EXPECT_EQ(padded_vocab_size(test::gpt2_124m(), 8), 51200);
}

}  // namespace
}  // namespace colonnade::cost
