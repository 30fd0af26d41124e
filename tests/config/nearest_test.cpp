// Suggestions for unknown flags: typos, off forms, parts of names, names of other frameworks.
#include <gtest/gtest.h>

#include <sstream>

#include "colonnade/config/nearest.h"
#include "colonnade/config/parse.h"
#include "colonnade/config/schema.h"

namespace colonnade::config {
namespace {

using Pairs = std::vector<std::pair<const char*, const char*>>;

void expect_nearest(const Pairs& pairs) {
  for (const auto& [asked, meant] : pairs) {
    EXPECT_EQ(nearest(asked), meant) << asked;
    EXPECT_FALSE(find(asked)) << asked << " is a setting";
  }
}

TEST(Nearest, CorrectsTypos) {
  expect_nearest({{"--num-layer", "--num-layers"},
                  {"--hiden_size", "--hidden-size"},
                  {"--micro_batchsize", "--micro-batch-size"},
                  {"--no-swiglo", "--no-swiglu"},
                  {"--no-bias-gelu-fusio", "--no-bias-gelu-fusion"},
                  {"--num-expert", "--num-experts"}});
  EXPECT_EQ(nearest("--promt", {"--prompt"}), "--prompt");
}

TEST(Nearest, CompletesPrefixesPartsAndSharedWords) {
  expect_nearest({{"--hidden", "--hidden-size"},
                  {"--tokenizer", "--tokenizer-type"},
                  {"--pipeline-size", "--pipeline-model-parallel-size"},
                  {"--attention-heads", "--num-attention-heads"},
                  {"--beta1", "--adam-beta1"},
                  {"--batch-size-per-gpu", "--batch-size"},
                  {"--lr-rate", "--lr"}});
}

TEST(Nearest, KnowsNamesOfOtherFrameworks) {
  expect_nearest({{"--tp", "--tensor-model-parallel-size"},
                  {"--tensor-parallel-size", "--tensor-model-parallel-size"},
                  {"--pp", "--pipeline-model-parallel-size"},
                  {"--seqlen", "--seq-length"},
                  {"--seq-len", "--seq-length"},
                  {"--layers", "--num-layers"},
                  {"--heads", "--num-attention-heads"},
                  {"--dropout", "--hidden-dropout or --attention-dropout"},
                  {"--ffn-size", "--ffn-hidden-size"},
                  {"--learning-rate", "--lr"},
                  {"--precision", "--bf16 or --fp16"},
                  {"--num-iters", "--train-iters"},
                  {"--gradient-accumulation-steps", "--global-batch-size"}});
}

TEST(Nearest, PrefersVerbFlagsAndOnlySuggestsReadSettings) {
  const std::vector<std::string> own{"--prompt", "--max-new-tokens", "--temperature"};
  EXPECT_EQ(nearest("--max-length", own, Use::kGenerate), "--max-new-tokens");
  EXPECT_EQ(nearest("--max", own, Use::kGenerate), "--max-new-tokens") << "before --max-position-embeddings";
  EXPECT_EQ(nearest("--max-length", {}, Use::kTrain), "--seq-length");
  EXPECT_EQ(nearest("--max-length", {}, Use::kGenerate), "") << "--seq-length is not read";
  EXPECT_EQ(nearest("--learning-rate", own, Use::kGenerate), "");
  EXPECT_EQ(nearest("--micro-batchsize", own, Use::kGenerate), "");
  EXPECT_EQ(nearest("--micro-batchsize", {}, Use::kEvaluateData), "--micro-batch-size");
  EXPECT_EQ(nearest("--tp", own, Use::kGenerate), "--tensor-model-parallel-size");
  EXPECT_EQ(parse_all({"--max-length", "3"}, {{"--max-new-tokens", "N", ""}}, Use::kGenerate).faults,
            std::vector<std::string>{
                "--max-length must be a known setting; got --max-length; did you mean --max-new-tokens?"});
}

TEST(Nearest, SuggestsOnlyFlagsThatExist) {
  for (const char* asked :
       {"cp", "ep", "sp", "vpp", "d_model", "num_kv_heads", "head_dim", "vocab", "rope_theta", "warmup_steps",
        "lr_scheduler", "wd", "grad_clip", "mbs", "dataset", "output_dir", "resume", "workers", "dropout"}) {
    EXPECT_FALSE(find(asked)) << asked << " is a setting";
    std::istringstream flags(nearest(asked));
    std::string flag;
    ASSERT_TRUE(flags >> flag) << asked;
    do {
      EXPECT_TRUE(flag == "or" || find(flag)) << asked << ": " << flag;
    } while (flags >> flag);
  }
}

TEST(Nearest, SuggestsNothingForDissimilarNames) {
  for (const char* asked : {"--zzzzzzzzzzzzzzz", "--xy", "--no", "--q", "--"}) EXPECT_EQ(nearest(asked), "");
}

}  // namespace
}  // namespace colonnade::config
