// Folders that --load and --save reject, and folders that start a new run.
#include "colonnade/job/folder_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "colonnade/base/error.h"
#include "colonnade/job/prepare.h"

namespace colonnade::job {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class FolderChecks : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  /// Creates files and their parent folders; a name that ends with '/' is a folder.
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

  const fs::path folder_ = fs::path(testing::TempDir()) / "colonnade_folder_checks_test";
};

TEST_F(FolderChecks, MissingOrEmptyFolderStartsARun) {
  EXPECT_EQ(load(), "");
  EXPECT_EQ(save(), "");
  make({});
  EXPECT_EQ(load(), "");
  EXPECT_EQ(load("none/"), "");
}

TEST_F(FolderChecks, FilesOfARunBeforeItsFirstCheckpointAreAccepted) {
  make({"config.yaml", "metrics.jsonl", "metrics.jsonl.1", "validation.jsonl", "sessions.json", "report.html",
        "tensorboard/events.out.tfevents.1", "checkpoints/", "logs/rank_0.log", "notes/anything.pt"});
  EXPECT_EQ(load(), "");
  EXPECT_EQ(load("checkpoints"), "");
}

TEST_F(FolderChecks, FilesOfLauncherAndJobScriptAreAccepted) {
  make({"slurm-17.out", "job.sh", "run.yaml", "out/rank_0.log", "out/rank_1.log", "cache/gpt.idx", "tb/x"});
  config::Run run;
  run.data.data_cache_path = (folder_ / "cache").string();
  run.logging.tensorboard_dir = (folder_ / "tb/").string();
  EXPECT_EQ(load("", run), "");
  EXPECT_THAT(load(), AllOf(HasSubstr("but with cache, tb;"), HasSubstr("remove --load")));
}

TEST_F(FolderChecks, ParentsOfFoldersInTheSettingsAreAccepted) {
  make({"cache/index/gpt.idx", "tb/a/x", "cache2/x"});
  config::Run run;
  run.data.data_cache_path = (folder_ / "cache/index/").string();
  run.logging.tensorboard_dir = (folder_ / "tb/a/b/../").string();
  EXPECT_THAT(load("", run), HasSubstr("but with cache2;"));
}

TEST_F(FolderChecks, PartialCheckpointsBelongToTheRun) {
  make({"checkpoints/step_00000002.staging/model.safetensors", "checkpoints/latest.part-7", "metrics.jsonl"});
  EXPECT_EQ(load(), "");
  EXPECT_EQ(load("checkpoints/"), "");
}

TEST_F(FolderChecks, MegatronFoldersAreRejected) {
  make({"latest_checkpointed_iteration.txt", "iter_0000010/.metadata", "iter_0000010/__0_0.distcp",
        "iter_0000010/common.pt"});
  for (const char* name : {"", "iter_0000010", "iter_0000010/"})
    EXPECT_THAT(load(name), AllOf(HasSubstr("must name a checkpoint of Megatron with its tensors"),
                                  HasSubstr("copy the folder")))
        << name;
  EXPECT_THAT(save(), AllOf(HasSubstr("--save must not name a folder of Megatron's"),
                            HasSubstr("iter_0000010"), HasSubstr("another folder")));
}

TEST_F(FolderChecks, MegatronFoldersOneLevelDownAreRejected) {
  make({"checkpoints/iter_0000010/mp_rank_00/model_optim_rng.pt", "metrics.jsonl"});
  EXPECT_THAT(load(), HasSubstr("with checkpoints/iter_0000010 alone"));
  EXPECT_THAT(load("checkpoints/iter_0000010/mp_rank_00"), HasSubstr("with model_optim_rng.pt alone"));
}

TEST_F(FolderChecks, MegatronRankFoldersAreRejectedInEveryLayout) {
  for (const char* rank : {"mp_rank_00", "mp_rank_01_002", "mp_rank_01_002_003"}) {
    fs::remove_all(folder_);
    make({rank + std::string("/distrib_optim.pt")});
    EXPECT_THAT(load(), HasSubstr("with " + std::string(rank) + " alone")) << rank;
  }
}

TEST_F(FolderChecks, NamesThatOnlyResembleMegatronsAreAccepted) {
  // Run folders with the user's own names.
  for (const char* name : {"iter_01", "iter_0000010", "mp_rank_a"}) {
    make({std::string(name) + "/config.yaml", std::string(name) + "/metrics.jsonl"});
    EXPECT_EQ(load(name), "") << name;
  }
  fs::remove_all(folder_);
  make({"iter_01/x", "iter_00000100/x", "mp_rank_0/x", "mp_rank_all/x", "metrics.jsonl"});
  EXPECT_EQ(load(), "");
  EXPECT_EQ(save(), "");
}

TEST_F(FolderChecks, PyTorchCheckpointsAreNotReportedAsMegatrons) {
  make({"step-10/.metadata", "step-10/__0_0.distcp"});
  EXPECT_THAT(load("step-10"), AllOf(HasSubstr("but with __0_0.distcp;"), Not(HasSubstr("Megatron"))));
  EXPECT_THAT(load(), AllOf(HasSubstr("but with step-10;"), Not(HasSubstr("Megatron"))));
}

TEST_F(FolderChecks, HuggingFaceWeightsAreNotARun) {
  make({"config.json", "model.safetensors", "tokenizer.json"});
  EXPECT_THAT(load(),
              AllOf(HasSubstr("Hugging Face"), HasSubstr("use --pretrained-checkpoint " + folder_.string())));
}

TEST_F(FolderChecks, FileInPlaceOfAFolderIsRejected) {
  make({"config.yaml"});
  EXPECT_THAT(load("config.yaml"),
              AllOf(HasSubstr("got the file"), HasSubstr("e.g. --load " + folder_.string())));
}

TEST_F(FolderChecks, UnrelatedFilesAreListed) {
  make({"a.pt", "b.ckpt", "checkpoints/epoch=1.ckpt", "latest.pt"});
  EXPECT_THAT(load(), HasSubstr("but with a.pt, b.ckpt, checkpoints, ...;"));
  EXPECT_THAT(load("checkpoints"), HasSubstr("but with epoch=1.ckpt;"));
}

/// A symlink to itself is unreadable like a folder without permissions, even for a container's root user.
TEST_F(FolderChecks, UnreadableFoldersAreConfigErrors) {
  make({"run/"});
  fs::create_symlink("loop", folder_ / "loop");
  fs::create_symlink("checkpoints", folder_ / "run/checkpoints");
  for (const char* name : {"loop", "loop/inside", "run"}) {
    config::Run run;
    run.checkpoint.load = (folder_ / name).string();
    run.checkpoint.ckpt_step = 4;
    const std::string text = "--load: the folder must be readable; got " + run.checkpoint.load + " (";
    EXPECT_THAT(unreadable_load_fault(run), HasSubstr(text));
    EXPECT_EQ(load_fault(run), unreadable_load_fault(run));
    try {
      prepare(run, rules::Purpose::kTrain);
      FAIL() << name << " is accepted";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr(text));
    }
  }
}

TEST_F(FolderChecks, MissingStepFolderIsRejected) {
  make({"checkpoints/"});
  EXPECT_THAT(load("checkpoints/step_00000004"), HasSubstr("--load must name an existing step folder"));
}

}  // namespace
}  // namespace colonnade::job
