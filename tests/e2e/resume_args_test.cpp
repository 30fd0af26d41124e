// Runs that adopt settings or another iteration from a checkpoint by Megatron's flags: --use-checkpoint-args,
// --use-mp-args-from-checkpoint-args, --override-ckpt-iteration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Words steps(int last, const fs::path& save, const Words& more = {}) {
  return small_gpt() +
         Words{"--eval-iters", "0", "--train-iters", std::to_string(last), "--save", save.string()} + more;
}

std::vector<double> values(const fs::path& run, const char* key) {
  std::vector<double> all;
  for (const auto& line : metrics(run)) all.push_back(line.at(key));
  return all;
}

/// The line of a text that starts with `begin`.
std::string line_of(const std::string& text, const std::string& begin) {
  const std::size_t at = text.find("\n" + begin);
  return at == std::string::npos ? "" : text.substr(at + 1, text.find('\n', at + 1) - at - 1);
}

TEST(ResumeArgs, SettingsOfARunReplaceGivenOnesInPretrainAndPlan) {
  const TempFolder folder;
  const Words model{"--squared-relu", "--hidden-dropout", "0.2"};
  ASSERT_EQ(run(colonnade(steps(4, folder / "whole", model))).code, 0);
  ASSERT_EQ(run(colonnade(steps(2, folder / "run", model))).code, 0);
  const Words load{"--load", (folder / "run").string()}, other{"--swiglu", "--hidden-dropout", "0.4"};
  const Result refused = run(colonnade(steps(4, folder / "run", load + other)));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.text, HasSubstr("--activation must agree with"));

  const Words planned = Words{"plan"} + load, forced = other + Words{"--use-checkpoint-args"};
  const Result plan = run(colonnade(planned + forced)), plain = run(colonnade(planned));
  EXPECT_EQ(plan.code, 0) << plan.text;
  EXPECT_THAT(plan.text, HasSubstr("--activation: --use-checkpoint-args takes squared-relu from "));
  EXPECT_NE(line_of("\n" + plain.text, "model: "), "");
  EXPECT_EQ(line_of("\n" + plan.text, "model: "), line_of("\n" + plain.text, "model: "));

  const Result taken = run(colonnade(steps(4, folder / "run", load + forced)));
  ASSERT_EQ(taken.code, 0) << taken.text;
  EXPECT_THAT(taken.text, AllOf(HasSubstr("--activation: --use-checkpoint-args takes squared-relu from "),
                                HasSubstr("got swiglu from the command line"),
                                HasSubstr("--hidden-dropout: --use-checkpoint-args takes 0.2 from "),
                                Not(HasSubstr("--hidden-dropout: was"))));
  EXPECT_EQ(values(folder / "run", "lm_loss"), values(folder / "whole", "lm_loss"));

  const Result size = run(colonnade(steps(6, folder / "run", load + forced + Words{"--num-layers", "3"})));
  EXPECT_EQ(size.code, 2);
  EXPECT_THAT(size.text, HasSubstr("--num-layers must agree with"));
}

TEST(ResumeArgs, SettingsOfAHuggingFaceFolderReplaceGivenOnes) {
  const TempFolder folder;
  const std::string llama = test::vectors() + "/hf/llama_plain";
  const auto words = [&](const char* verb, const Words& more) {
    return colonnade(Words{verb, "--pretrained-checkpoint", llama, "--mock-data", "--seq-length", "16",
                           "--micro-batch-size", "1", "--global-batch-size", "1", "--train-iters", "1",
                           "--lr", "1e-5", "--eval-iters", "0", "--save-interval", "1"} +
                     more);
  };
  const Words other{"--squared-relu", "--normalization", "LayerNorm", "--attention-dropout", "0.25"};
  const Words forced = other + Words{"--use-checkpoint-args"};
  EXPECT_EQ(run(words("pretrain", other)).code, 2);
  ASSERT_EQ(run(words("pretrain", {"--save", (folder / "plain").string()})).code, 0);
  const Result taken = run(words("pretrain", forced + Words{"--save", (folder / "taken").string()}));
  ASSERT_EQ(taken.code, 0) << taken.text;
  for (const char* note : {"--activation: --use-checkpoint-args takes swiglu from ",
                           "--normalization: --use-checkpoint-args takes RMSNorm from ",
                           "--attention-dropout: --use-checkpoint-args takes 0 from "})
    EXPECT_THAT(taken.text, HasSubstr(note));
  EXPECT_EQ(values(folder / "taken", "lm_loss"), values(folder / "plain", "lm_loss"));
  const char* step = "checkpoints/step_00000001";
  EXPECT_EQ(differences(folder / "taken" / step, folder / "plain" / step), Words{});
  const Result plan = run(words("plan", forced));
  EXPECT_EQ(plan.code, 0) << plan.text;
  EXPECT_THAT(plan.text, HasSubstr("--normalization: --use-checkpoint-args takes RMSNorm from "));
}

TEST(ResumeArgs, WithoutACheckpointTheModelMustBeGiven) {
  const TempFolder folder;
  const std::string none = (folder / "none").string();
  const Result begun = run(colonnade(steps(2, folder / "run", {"--load", none, "--use-checkpoint-args"})));
  EXPECT_EQ(begun.code, 0) << "a new run, as in Megatron: " << begun.text;
  const Words bare{"--mock-data", "--seq-length",  "8",  "--micro-batch-size",
                   "1",           "--train-iters", "1",  "--lr",
                   "1",           "--load",        none, "--use-checkpoint-args"};
  for (const auto& [verb, what] : {std::pair("pretrain", "trained"), std::pair("plan", "planned")}) {
    const Result missing = run(colonnade(Words{verb} + bare));
    EXPECT_EQ(missing.code, 2);
    EXPECT_THAT(missing.text, HasSubstr("--load must contain a checkpoint of the model to be " +
                                        std::string(what) + "; got none in " + none));
    EXPECT_THAT(missing.text, Not(HasSubstr("--num-layers: "))) << "one cause, one error";
  }
  const Result nowhere = run(colonnade(steps(2, folder / "other", {"--use-checkpoint-args"})));
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_THAT(nowhere.text, HasSubstr("--use-checkpoint-args must be used with --load"));
}

TEST(ResumeArgs, ParallelSizesAreThoseOfTheCheckpointsRun) {
  const TempFolder folder;
  const Words split{"--tensor-model-parallel-size", "2"};
  ASSERT_EQ(run(launch(2, folder.path(), steps(2, folder / "run", split))).code, 0);
  const Words sizes{"--use-checkpoint-args", "--use-mp-args-from-checkpoint-args"};
  const Words load{"plan", "--load", (folder / "run").string(), "--pipeline-model-parallel-size", "2"};
  EXPECT_THAT(run(colonnade(load)).text, HasSubstr("2 ranks: tensor 1 x context 1 x data 1 x pipeline 2\n"));
  const Result plan = run(colonnade(load + sizes));
  EXPECT_EQ(plan.code, 0) << plan.text;
  EXPECT_THAT(plan.text,
              AllOf(HasSubstr("2 ranks: tensor 2 x context 1 x data 1 x pipeline 1\n"),
                    HasSubstr("--pipeline-model-parallel-size: --use-checkpoint-args takes 1 from ")));
  const Result resumed = run(
      launch(2, folder.path(), steps(4, folder / "run", sizes + Words{"--load", (folder / "run").string()})));
  EXPECT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_THAT(resumed.text, HasSubstr("tensor 2 x pipeline 1"));
  const Result alone = run(colonnade(
      steps(6, folder / "run", {"--load", (folder / "run").string(), "--use-mp-args-from-checkpoint-args"})));
  EXPECT_EQ(alone.code, 2);
  EXPECT_THAT(alone.text, HasSubstr("--use-mp-args-from-checkpoint-args requires --use-checkpoint-args"));
}

/// A learning rate that changes no fp32 weight: the loss of a step identifies its samples.
Words constant_weights(int last, const fs::path& save, const Words& more = {}) {
  return steps(last, save,
               Words{"--lr", "1e-30", "--hidden-dropout", "0", "--attention-dropout", "0"} + more);
}

TEST(ResumeOverride, ContinuesWithTheSamplesOfTheIterationAndTheScheduleOfTheCheckpoint) {
  const TempFolder folder;
  ASSERT_EQ(run(colonnade(constant_weights(6, folder / "whole"))).code, 0);
  const auto losses = values(folder / "whole", "lm_loss"), rates = values(folder / "whole", "learning_rate");
  ASSERT_EQ(losses.size(), 6U);
  const std::string at_2 = (folder / "whole/checkpoints/step_00000002").string();
  const auto overridden = [&](const char* iteration, const Words& more = {}) {
    const fs::path save = folder / ("as_" + std::string(iteration) + std::to_string(more.size()));
    const Result result = run(colonnade(
        constant_weights(6, save, Words{"--load", at_2, "--override-ckpt-iteration", iteration} + more)));
    EXPECT_EQ(result.code, 0) << result.text;
    EXPECT_THAT(result.text,
                HasSubstr("the checkpoint of iteration 2 counts as iteration " + std::string(iteration)));
    return save;
  };
  const fs::path later = overridden("3");
  EXPECT_EQ(iterations(later), (std::vector{4, 5, 6}));
  EXPECT_EQ(values(later, "consumed_samples"), (std::vector<double>{16, 20, 24}));
  EXPECT_EQ(values(later, "lm_loss"), (std::vector<double>(losses.begin() + 3, losses.end())));
  EXPECT_EQ(values(later, "learning_rate"), (std::vector<double>(rates.begin() + 2, rates.end() - 1)))
      << "the schedule continues after two steps";
  const fs::path earlier = overridden("0");
  EXPECT_EQ(values(earlier, "lm_loss"), losses);
  const fs::path scheduled = overridden("3", {"--override-opt-param-scheduler"});
  EXPECT_EQ(values(scheduled, "learning_rate"), (std::vector<double>(rates.begin() + 3, rates.end())))
      << "as in Megatron, which sets such a schedule to the consumed samples";
}

TEST(ResumeOverride, RunResumesInItsOwnFolderFromItsNewCheckpoint) {
  const TempFolder folder;
  const Words load{"--load", (folder / "run").string()};
  ASSERT_EQ(run(colonnade(constant_weights(4, folder / "run"))).code, 0);
  ASSERT_EQ(run(colonnade(constant_weights(
                    6, folder / "run", load + Words{"--ckpt-step", "2", "--override-ckpt-iteration", "3"})))
                .code,
            0);
  EXPECT_EQ(iterations(folder / "run"), (std::vector{1, 2, 4, 5, 6})) << "the old steps 3 and 4 are lost";
  const Result more =
      run(colonnade({"pretrain", "--config", (folder / "run/config.yaml").string(), "--train-iters", "8"}));
  ASSERT_EQ(more.code, 0) << more.text;
  EXPECT_EQ(iterations(folder / "run"), (std::vector{1, 2, 4, 5, 6, 7, 8})) << "overridden once";
  const Result audit = run(colonnade({"data", "audit", (folder / "run").string()}));
  EXPECT_THAT(audit.text, HasSubstr("whose step 2 counts as 3"));
}

TEST(ResumeOverride, RequiresACheckpointAndItsCounters) {
  const TempFolder folder;
  const Words flag{"--override-ckpt-iteration", "3"};
  const Result without = run(colonnade(steps(4, folder / "run", flag)));
  EXPECT_EQ(without.code, 0) << "a new run, as in Megatron: " << without.text;
  EXPECT_THAT(without.text, HasSubstr("--override-ckpt-iteration has no effect without --load"));
  const Result restarted = run(colonnade(
      steps(4, folder / "restarted", flag + Words{"--load", (folder / "none").string(), "--finetune"})));
  EXPECT_EQ(restarted.code, 2);
  EXPECT_THAT(restarted.text, HasSubstr("--override-ckpt-iteration is not supported with --finetune"));
}

}  // namespace
}  // namespace colonnade::e2e
