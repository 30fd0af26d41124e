// Weights with a NaN: evaluate and pretrain --skip-train print their results and end with 1.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "program.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// The recorded model with a NaN in the output layer's row of token 0.
fs::path model_with_nan(const TempFolder& folder) {
  const fs::path recorded = fs::path(test::vectors()) / "hf/llama", made = folder / "model";
  fs::copy(recorded, made);
  std::string file = read_text(recorded / "model.safetensors");
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  const auto tensors = nlohmann::json::parse(file.substr(8, length));
  const std::size_t begin = tensors.at("lm_head.weight").at("data_offsets").at(0);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(file.data() + 8 + length + begin, &nan, sizeof nan);
  fs::remove(made / "model.safetensors");
  write_text(made / "model.safetensors", file);
  return made;
}

const Words kData = {"--mock-data", "--seq-length", "32", "--eval-iters", "2", "--global-batch-size", "2"};

TEST(NotFinite, EvaluatePrintsTheLossAndFails) {
  const TempFolder folder;
  const Words words = Words{"evaluate", "--load", model_with_nan(folder).string()} + kData;
  const Result alone = run(colonnade(words));
  EXPECT_EQ(alone.code, 1) << alone.text;
  EXPECT_THAT(alone.text, HasSubstr("perplexity"));
  EXPECT_THAT(alone.text, HasSubstr("error: loss must be finite; got "));
  const Result launched = run(launch(2, folder.path(), words + Words{"--tensor-model-parallel-size", "2"}));
  EXPECT_EQ(launched.code, 4) << launched.text;
  EXPECT_THAT(launched.text, HasSubstr("perplexity")) << "no rank ends before it is printed";
}

TEST(NotFinite, SkipTrainFailsUnlessTheCheckIsDisabled) {
  const TempFolder folder;
  const Words words = Words{"pretrain",
                            "gpt",
                            "--pretrained-checkpoint",
                            model_with_nan(folder).string(),
                            "--skip-train",
                            "--train-iters",
                            "1",
                            "--micro-batch-size",
                            "1",
                            "--tokenizer-type",
                            "NullTokenizer",
                            "--save",
                            (folder / "run").string()} +
                      kData;
  const Result checked = run(colonnade(words));
  EXPECT_EQ(checked.code, 1) << checked.text;
  EXPECT_THAT(checked.text, HasSubstr("error: test: the loss must be finite; got "));
  EXPECT_THAT(read_text(folder / "run/validation.jsonl"), HasSubstr("\"test\""))
      << "results are written first";
  const Result unchecked = run(colonnade(words + Words{"--no-check-for-nan-in-loss-and-grad"}));
  EXPECT_EQ(unchecked.code, 0) << unchecked.text;
}

}  // namespace
}  // namespace colonnade::e2e
