// Which folders --load and --save are refused for, and which begin a new run.
#include "colonnade/job/foreign.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace colonnade::job {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class Foreign : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  /// Makes files, with the folders that they lie in; a name that ends with '/' is a folder.
  void make(const std::vector<std::string>& names) const {
    fs::create_directories(folder_);
    for (const std::string& name : names) {
      fs::create_directories((folder_ / name).parent_path());
      if (!name.ends_with('/')) std::ofstream(folder_ / name) << "{}";
    }
  }

  std::string load(const std::string& name = "", config::Run run = {}) const {
    run.checkpoint.load = (folder_ / name).string();
    return load_fault(run);
  }
  std::string save() const {
    config::Run run;
    run.checkpoint.save = folder_.string();
    return save_fault(run);
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / "colonnade_foreign_test";
};

TEST_F(Foreign, AMissingOrEmptyFolderBeginsARun) {
  EXPECT_EQ(load(), "");
  EXPECT_EQ(save(), "");
  make({});
  EXPECT_EQ(load(), "");
  EXPECT_EQ(load("none/"), "");
}

TEST_F(Foreign, WhatARunLeavesBeforeItsFirstCheckpointBeginsItAgain) {
  make({"config.yaml", "metrics.jsonl", "metrics.jsonl.1", "validation.jsonl", "sessions.json", "report.html",
        "tensorboard/events.out.tfevents.1", "checkpoints/", "logs/rank_0.log", "notes/anything.pt"});
  EXPECT_EQ(load(), "");
  EXPECT_EQ(load("checkpoints"), "");
}

TEST_F(Foreign, WhatComesBeforeARunIsNoReasonToRefuseIt) {
  make({"slurm-17.out", "job.sh", "run.yaml", "out/rank_0.log", "out/rank_1.log", "cache/gpt.idx", "tb/x"});
  config::Run run;
  run.data.data_cache_path = (folder_ / "cache").string();
  run.logging.tensorboard_dir = (folder_ / "tb/").string();
  EXPECT_EQ(load("", run), "");
  EXPECT_THAT(load(), AllOf(HasSubstr("but with cache, tb;"), HasSubstr("leave --load out")));
}

TEST_F(Foreign, HalfWrittenCheckpointsAreOfTheRun) {
  make({"checkpoints/step_00000002.staging/model.safetensors", "checkpoints/latest.part-7", "metrics.jsonl"});
  EXPECT_EQ(load(), "");
  EXPECT_EQ(load("checkpoints/"), "");
}

TEST_F(Foreign, MegatronsFoldersAreNamed) {
  make({"latest_checkpointed_iteration.txt", "iter_0000010/.metadata", "iter_0000010/__0_0.distcp",
        "iter_0000010/common.pt"});
  for (const char* name : {"", "iter_0000010", "iter_0000010/"})
    EXPECT_THAT(load(name), AllOf(HasSubstr("Megatron's checkpoints are not read yet"),
                                  HasSubstr("use --pretrained-checkpoint")))
        << name;
  EXPECT_THAT(save(), AllOf(HasSubstr("--save: "), HasSubstr("iter_0000010"), HasSubstr("another folder")));
}

TEST_F(Foreign, MegatronsCheckpointsOneFolderDownAreNamedToo) {
  make({"checkpoints/iter_0000010/mp_rank_00/model_optim_rng.pt", "metrics.jsonl"});
  EXPECT_THAT(load(), HasSubstr("Megatron's checkpoints/iter_0000010"));
  EXPECT_THAT(load("checkpoints/iter_0000010/mp_rank_00"), HasSubstr("Megatron's mp_rank_00"));
}

TEST_F(Foreign, WeightsOfHuggingFaceAreNoRun) {
  make({"config.json", "model.safetensors", "tokenizer.json"});
  EXPECT_THAT(load(),
              AllOf(HasSubstr("Hugging Face"), HasSubstr("use --pretrained-checkpoint " + folder_.string())));
}

TEST_F(Foreign, AFileIsNoFolder) {
  make({"config.yaml"});
  EXPECT_THAT(load("config.yaml"),
              AllOf(HasSubstr("got the file"), HasSubstr("e.g. --load " + folder_.string())));
}

TEST_F(Foreign, OtherFilesAreNamed) {
  make({"a.pt", "b.ckpt", "checkpoints/epoch=1.ckpt", "latest.pt"});
  EXPECT_THAT(load(), HasSubstr("but with a.pt, b.ckpt, checkpoints, ...;"));
  EXPECT_THAT(load("checkpoints"), HasSubstr("but with epoch=1.ckpt;"));
}

TEST_F(Foreign, AStepFolderThatIsNotThereBeginsNothing) {
  make({"checkpoints/"});
  EXPECT_THAT(load("checkpoints/step_00000004"), HasSubstr("a step folder must be there"));
}

}  // namespace
}  // namespace colonnade::job
