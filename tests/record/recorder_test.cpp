// Files of rank 0 in the run folder over two sessions of one run.
#include "colonnade/record/recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "colonnade/base/files.h"
#include "colonnade/config/parse.h"
#include "colonnade/record/sessions.h"

namespace colonnade::record {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class RecorderTest : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(folder_.root); }
  void TearDown() override { fs::remove_all(folder_.root); }

  /// Records steps first..last and a report, as one session does.
  void session(const std::string& layout, std::int64_t first, std::int64_t last) const {
    config::Run run;
    run.training.global_batch_size = 8;
    Recorder recorder(folder_, run, {first - 1, (first - 1) * 8}, true);
    for (std::int64_t i = first; i <= last; ++i)
      recorder.step({.iteration = i, .consumed_samples = i * 8, .lm_loss = 1, .step_ms = 1}, {}, last);
    recorder.report({.title = "gpt", .facts = {{"layout", layout}}, .ranks = {{.blocks = layout}}},
                    PhaseTimes{{1, 2, 0, 0, 0, 0}}, 4);
  }

  const RunFolder folder_{fs::path(testing::TempDir()) / "colonnade_recorder_test"};
};

TEST_F(RecorderTest, ResumedRunReportsBothSessions) {
  session("tensor 2", 1, 4);
  session("data 2", 3, 6);
  const auto sessions = read_sessions(folder_.sessions());
  ASSERT_EQ(sessions.size(), 2U);
  EXPECT_EQ(sessions[0].last_step, 4);
  EXPECT_EQ(sessions[1].first_step, 3);
  EXPECT_EQ(sessions[1].last_step, 6);
  EXPECT_EQ(sessions[1].wall_seconds, 4);
  EXPECT_EQ(sessions[1].began.size(), std::string("2026-11-21 13:04").size());
  EXPECT_EQ(read_steps(folder_.metrics()).size(), 6U);
  const std::string page = read_file(folder_.report());
  EXPECT_THAT(page, HasSubstr("Session 1, steps 1 to 4, repeated later from step 3: tensor 2"));
  EXPECT_THAT(page, HasSubstr("Session 2, steps 3 to 6: data 2"));
}

// Steps after the checkpoint are lost, and two steps with one number cannot both have a line.
TEST_F(RecorderTest, OverriddenIterationKeepsStepsUpToTheSmallerNumber) {
  for (const auto& [loaded, saved] : {std::pair(ResumePoint{3, 24}, ResumePoint{2, 16}),
                                      std::pair(ResumePoint{2, 16}, ResumePoint{4, 32})}) {
    fs::remove_all(folder_.root);
    session("tensor 2", 1, 4);
    Recorder recorder(folder_, {}, loaded, true, saved);
    EXPECT_EQ(read_steps(folder_.metrics()).size(), 2U) << loaded.step;
    recorder.step({.iteration = loaded.step + 1, .step_ms = 1}, {}, 5);
    EXPECT_EQ(read_steps(folder_.metrics()).back().iteration, loaded.step + 1);
  }
}

TEST_F(RecorderTest, TensorBoardHasTheStepsOfItsInterval) {
  Recorder recorder(folder_, config::parse({"gpt", "--tensorboard-log-interval", "2"}), {}, true);
  for (std::int64_t i = 1; i <= 5; ++i)
    recorder.step({.iteration = i, .step_ms = 1, .extra_losses = {{fmt::format("of step {}", i), 1}}}, {}, 5);
  const std::string events = read_file(fs::directory_iterator(folder_.tensorboard())->path());
  for (const char* written : {"of step 2", "of step 4"}) EXPECT_THAT(events, HasSubstr(written));
  for (const char* left_out : {"of step 1", "of step 3", "of step 5"})
    EXPECT_THAT(events, testing::Not(HasSubstr(left_out)));
  EXPECT_EQ(read_steps(folder_.metrics()).size(), 5U) << "the run's own file has every step";
}

TEST_F(RecorderTest, SecondReportOfASessionReplacesTheFirst) {
  config::Run run;
  Recorder recorder(folder_, run, {}, true);
  recorder.report({.title = "gpt"}, {}, 1);
  recorder.step({.iteration = 1, .step_ms = 1}, {}, 1);
  recorder.report({.title = "gpt"}, {}, 2);
  const auto sessions = read_sessions(folder_.sessions());
  ASSERT_EQ(sessions.size(), 1U);
  EXPECT_EQ(sessions[0].last_step, 1);
  EXPECT_EQ(sessions[0].wall_seconds, 2);
}

TEST_F(RecorderTest, DamagedSessionsFileDoesNotStopTheRun) {
  session("tensor 2", 1, 2);
  std::ofstream(folder_.sessions()) << "rubbish";
  session("data 2", 3, 4);
  EXPECT_EQ(read_sessions(folder_.sessions()).size(), 1U);
}

/// Settings of config.yaml after a run with `given` started in `folder`, and after its first checkpoint.
std::pair<config::Checkpoint, config::Checkpoint> kept(const RunFolder& folder,
                                                       const config::Checkpoint& given) {
  config::Run run;
  run.checkpoint = given;
  Recorder recorder(folder, run, {}, true);
  const auto read = [&] { return config::parse_all({"--config", folder.config().string()}).run.checkpoint; };
  const config::Checkpoint before = read();
  recorder.checkpoint_saved();
  return {before, read()};
}

TEST_F(RecorderTest, ConfigYamlResumesFromTheRunsOwnCheckpoint) {
  const std::string here = folder_.root.string();
  const config::Checkpoint own{.save = here, .load = here};
  EXPECT_EQ(kept(folder_, {}), std::pair(own, own)) << "the folder was chosen by the program";
  EXPECT_EQ(kept(folder_, {.save = here}), std::pair(own, own));
  EXPECT_EQ(kept(folder_, own), std::pair(own, own));
  const config::Checkpoint weights{.save = here, .load = here, .pretrained_checkpoint = "/hf"};
  EXPECT_EQ(kept(folder_, {.save = here, .pretrained_checkpoint = "/hf", .exit_on_missing_checkpoint = true}),
            std::pair(weights, weights));
}

TEST_F(RecorderTest, ConfigYamlStartsFromElsewhereUntilThereIsACheckpoint) {
  const std::string here = folder_.root.string();
  const config::Checkpoint own{.save = here, .load = here};
  for (const config::Checkpoint& given :
       {config::Checkpoint{.save = here, .load = "/other"},
        config::Checkpoint{.save = here, .load = "/other", .finetune = true},
        config::Checkpoint{.save = here, .load = here, .ckpt_step = 2},
        config::Checkpoint{.save = here, .load = here, .override_ckpt_iteration = 3},
        config::Checkpoint{.save = here,
        .load = "/other",
        .use_checkpoint_args = true,
        .use_mp_args_from_checkpoint_args = true},
        config::Checkpoint{.save = here, .load = here, .no_load_optim = true}})
    EXPECT_EQ(kept(folder_, given), std::pair(given, own));
}

TEST_F(RecorderTest, EvaluationOnlyDoesNotChangeTheRunOfItsFolder) {
  session("tensor 2", 1, 4);
  const std::string settings = read_file(folder_.config());
  config::Run run;
  run.training.skip_train = true;
  run.checkpoint.ckpt_step = 2;
  {
    Recorder recorder(folder_, run, {2, 16}, true);
    recorder.evaluation({.iteration = 2, .consumed_samples = 16, .loss = 3});
    recorder.report({.title = "gpt"}, {}, 1);
  }
  EXPECT_EQ(read_file(folder_.config()), settings);
  EXPECT_EQ(read_steps(folder_.metrics()).size(), 4U);
  EXPECT_EQ(read_evals(folder_.validation()).size(), 1U);
  EXPECT_EQ(read_sessions(folder_.sessions()).size(), 1U);
}

TEST_F(RecorderTest, ConfigYamlHasAbsolutePaths) {
  const RunFolder relative{fs::relative(folder_.root)};
  config::Run run;
  run.checkpoint.load = "other/";
  run.checkpoint.pretrained_checkpoint = "../hf";
  run.logging.tensorboard_dir = (relative.root / "tb").string();
  run.data.data_cache_path = "cache";
  const Recorder recorder(relative, run, {}, true);
  const config::Run kept = config::parse_all({"--config", folder_.config().string()}).run;
  const fs::path here = fs::current_path();
  EXPECT_EQ(kept.checkpoint.save, folder_.root.string());
  EXPECT_EQ(kept.checkpoint.load, (here / "other/").string());
  EXPECT_EQ(kept.checkpoint.pretrained_checkpoint, (here.parent_path() / "hf").string());
  EXPECT_EQ(kept.logging.tensorboard_dir, (folder_.root / "tb").string());
  EXPECT_EQ(kept.data.data_cache_path, (here / "cache").string());
}

TEST_F(RecorderTest, OtherRanksWriteNothing) {
  Recorder recorder(folder_, {}, {}, false);
  recorder.step({.iteration = 1}, {}, 1);
  recorder.report({.title = "gpt"}, {}, 1);
  EXPECT_FALSE(fs::exists(folder_.root));
}

}  // namespace
}  // namespace colonnade::record
