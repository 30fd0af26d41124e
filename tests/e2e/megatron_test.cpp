// Runs that save Megatron's torch_dist, export Hugging Face folders and continue; colonnade convert.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

Words small_run(int last, const fs::path& save, const Words& more = {}) {
  return small_gpt() +
         Words{"--eval-iters", "0", "--train-iters", std::to_string(last), "--save", save.string()} + more;
}

Result train(const Words& words) { return run(colonnade(words)); }

TEST(TorchDist, ARunSavedForMegatronContinuesInAnotherLayout) {
  const TempFolder folder;
  const Words dist = {"--ckpt-format", "torch_dist", "--save-interval", "2", "--lr-decay-iters", "6"};
  ASSERT_EQ(train(small_run(6, folder / "whole", dist)).code, 0);
  const Result first = train(small_run(6, folder / "run", dist + Words{"--exit-interval", "4"}));
  ASSERT_EQ(first.code, 0) << first.text;
  EXPECT_TRUE(fs::exists(folder / "run" / "iter_0000004" / "metadata.json"));
  EXPECT_TRUE(fs::exists(folder / "run" / "iter_0000004" / "common.pt"));
  EXPECT_EQ(read_text(folder / "run" / "latest_checkpointed_iteration.txt"), "4");
  const Result second = run(launch(
      2, folder.path(),
      small_run(6, folder / "run",
                dist + Words{"--load", (folder / "run").string(), "--tensor-model-parallel-size", "2"})));
  ASSERT_EQ(second.code, 0) << second.text;
  EXPECT_THAT(second.text, HasSubstr("the run resumes after iteration 4"));
  const auto whole = metrics(folder / "whole"), continued = metrics(folder / "run");
  ASSERT_EQ(continued.size(), 6U);
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_NEAR(continued[i].at("lm_loss").get<double>(), whole[i].at("lm_loss").get<double>(), 1e-5) << i;
}

TEST(TorchDist, ExportsAndConversionsHoldTheSameWeights) {
  const TempFolder folder;
  const Result trained = train(
      small_run(2, folder / "run", {"--ckpt-format", "torch_dist", "--save-hf", (folder / "hf").string()}));
  ASSERT_EQ(trained.code, 0) << trained.text;
  EXPECT_THAT(trained.text, HasSubstr("exported"));
  const std::string exported = (folder / "hf" / "iter_0000002").string();
  const Result converted = run(colonnade({"convert", "--from", "megatron:" + (folder / "run").string(),
                                          "--to", "hf:" + (folder / "converted").string()}));
  ASSERT_EQ(converted.code, 0) << converted.text;
  const Result same = run(colonnade({"checkpoint", "diff", exported, (folder / "converted").string()}));
  EXPECT_EQ(same.code, 0) << same.text;
  // The spelling of Megatron's conversion skill.
  const Result again =
      run(colonnade({"convert", "--source", "hf", "--target", "megatron", "--input-path", exported,
                     "--output-path", (folder / "again").string(), "--target-tp", "2"}));
  ASSERT_EQ(again.code, 0) << again.text;
  EXPECT_EQ(run(colonnade({"checkpoint", "diff", exported, (folder / "again").string()})).code, 0);
}

TEST(TorchDist, BadFlagsOfConvertAreErrorsWithTheFix) {
  const auto fault = [](const Words& words) {
    const Result result = run(colonnade(Words{"convert"} + words));
    EXPECT_EQ(result.code, 2) << result.text;
    return result.text;
  };
  EXPECT_THAT(fault({"--from", "hf:a"}), HasSubstr("--to must be given; got none; write --to hf:DIR"));
  EXPECT_THAT(fault({"--from", "a", "--to", "hf:b"}), HasSubstr("--from must be FORMAT:DIR"));
  EXPECT_THAT(fault({"--from", "torch:a", "--to", "hf:b"}),
              HasSubstr("--from must be hf, megatron or native"));
  EXPECT_THAT(fault({"--from", "hf:a", "--to", "hf:b", "--shard-size", "0"}),
              HasSubstr("--shard-size must be"));
}

}  // namespace
}  // namespace colonnade::e2e
