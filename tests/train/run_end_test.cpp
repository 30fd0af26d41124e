// The printed summary of a run: its lines by kind of run, and the form of its commands.
#include "colonnade/train/run_end.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace colonnade::train {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const launch::CommandLine kTwoRanks{
    {"colonnade", "launch", "--nproc-per-node", "2", "--"}, "colonnade", true, "pretrain"};
const launch::CommandLine kOneProcess{{"colonnade"}, "colonnade", false, "pretrain"};

config::Run text_run() {
  config::Run run;
  run.data.tokenizer_type = "HuggingFaceTokenizer";
  run.training.train_iters = 10;
  return run;
}

RunEnd stopped_at(std::int64_t iteration) {
  RunEnd ending{.iteration = iteration,
                .last_iteration = 10,
                .folder = "runs/a",
                .saved = iteration,
                .validates = true};
  ending.loss = 2.345678;
  return ending;
}

TEST(RunEnd, ListsFilesAndHowToResume) {
  RunEnd ending = stopped_at(4);
  ending.evaluations["validation"] = 2.5;
  EXPECT_EQ(end_summary(ending, text_run(), kTwoRanks),
            "stopped after iteration 4 of 10\n"
            "  loss        2.34568, validation 2.5\n"
            "  checkpoint  runs/a/checkpoints/step_00000004\n"
            "  report      runs/a/report.html\n"
            "  resume      colonnade launch --nproc-per-node 2 -- pretrain --config runs/a/config.yaml\n"
            "  evaluate    colonnade evaluate --load runs/a\n"
            "  generate    colonnade generate --load runs/a --prompt 'Once upon a time'\n");
}

TEST(RunEnd, CompleteRunResumesWithMoreSteps) {
  config::Run run = text_run();
  EXPECT_THAT(
      end_summary(stopped_at(10), run, kOneProcess),
      AllOf(HasSubstr("complete after iteration 10 of 10\n"),
            HasSubstr("--config runs/a/config.yaml --train-iters 20 --override-opt-param-scheduler\n")));
  run.schedule.lr_decay_iters = 40;
  EXPECT_THAT(end_summary(stopped_at(10), run, kOneProcess), HasSubstr("config.yaml --train-iters 20\n"))
      << "the schedule is kept";
  run.training.train_iters.reset();
  run.training.train_samples = 80;
  EXPECT_THAT(end_summary(stopped_at(10), run, kOneProcess), HasSubstr("config.yaml --train-samples 160\n"));
  run.checkpoint.no_save_optim = true;
  EXPECT_THAT(end_summary(stopped_at(4), run, kOneProcess), HasSubstr("config.yaml --no-load-optim\n"))
      << "a checkpoint without optimizer states";
  run.checkpoint.no_save_optim = false;
  RunEnd unsaved = stopped_at(10);
  unsaved.saved = 8;
  EXPECT_THAT(
      end_summary(unsaved, run, kOneProcess),
      AllOf(HasSubstr("checkpoint  runs/a/checkpoints/step_00000008\n"), HasSubstr("runs/a/config.yaml\n")))
      << "the last steps are repeated";
}

TEST(RunEnd, WithoutACheckpointNothingIsLoaded) {
  RunEnd ending = stopped_at(10);
  ending.saved = -1;
  EXPECT_THAT(end_summary(ending, text_run(), kOneProcess),
              AllOf(HasSubstr("checkpoint  none: "),
                    HasSubstr("run again   colonnade pretrain --config runs/a/config.yaml\n"),
                    Not(HasSubstr("evaluate")), Not(HasSubstr("generate"))));
}

TEST(RunEnd, GenerateRequiresAGptWithATextTokenizer) {
  for (const char* type : {"", "NullTokenizer"}) {
    config::Run run = text_run();
    run.data.tokenizer_type = type;
    EXPECT_THAT(end_summary(stopped_at(4), run, kOneProcess),
                AllOf(HasSubstr("evaluate"), Not(HasSubstr("generate"))));
  }
  for (const char* family : {"t5", "bert"}) {
    config::Run run = text_run();
    run.model_type = family;
    EXPECT_THAT(end_summary(stopped_at(4), run, kOneProcess),
                AllOf(HasSubstr("evaluate"), Not(HasSubstr("generate"))));
  }
}

TEST(RunEnd, OneProcessRunsUnlessTheModelIsShardedOverGpus) {
  config::Run run = text_run();
  run.training.device = "cuda";
  EXPECT_THAT(end_summary(stopped_at(4), run, kTwoRanks),
              HasSubstr("colonnade evaluate --load runs/a --device cuda\n"));
  run.parallel.tensor_model_parallel_size = 2;
  EXPECT_THAT(
      end_summary(stopped_at(4), run, kTwoRanks),
      AllOf(HasSubstr("colonnade launch --nproc-per-node 2 -- evaluate --config runs/a/config.yaml\n"),
            HasSubstr("-- generate --config runs/a/config.yaml --prompt 'Once upon a time'\n")));
}

TEST(RunEnd, WithoutAValidationSplitTrainingDataIsEvaluated) {
  RunEnd ending = stopped_at(4);
  ending.validates = false;
  EXPECT_THAT(end_summary(ending, text_run(), kOneProcess),
              HasSubstr("colonnade evaluate --load runs/a --split-name train --eval-iters 10\n"));
}

TEST(RunEnd, UnknownLaunchersAreDescribedNotGuessed) {
  config::Run run = text_run();
  run.parallel.world_size = 8;
  EXPECT_THAT(end_summary(stopped_at(4), run, kOneProcess),
              HasSubstr("start each rank of the resumed run as those of this run were started\n"));
  launch::CommandLine program = kOneProcess;
  program.verb = "--my-flag";
  EXPECT_THAT(end_summary(stopped_at(4), run, program), AllOf(HasSubstr("report"), Not(HasSubstr("resume"))))
      << "another program has other commands";
}

TEST(RunEnd, NamesAreQuotedForTheShell) {
  RunEnd ending = stopped_at(4);
  ending.folder = "my runs/it's";
  EXPECT_THAT(end_summary(ending, text_run(), kOneProcess),
              AllOf(HasSubstr("--config 'my runs/it'\\''s/config.yaml'\n"),
                    HasSubstr("--load 'my runs/it'\\''s'\n")));
}

}  // namespace
}  // namespace colonnade::train
