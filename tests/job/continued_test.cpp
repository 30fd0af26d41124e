// What a run that goes on keeps, what may change, and which tokenizer a checkpoint belongs to.
#include "colonnade/job/continued.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/fixtures.h"
#include "colonnade/base/files.h"
#include "colonnade/config/dump.h"
#include "colonnade/job/prepare.h"
#include "job/runs.h"

namespace colonnade::job {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kSentencePiece = std::string(COLONNADE_VECTORS) + "/tokenizers/sp_unigram.model";

config::Run run_of(const std::string& flags) { return config::parse(test::words("gpt " + flags)); }

/// The state of a run with these flags.
nlohmann::json state_of(const std::string& flags) {
  const config::Run run = run_of(flags);
  return {{"settings", config::values(run)}};
}

std::vector<std::string> faults_of(config::Run& run, const nlohmann::json& state) {
  std::vector<std::string> faults;
  keep_settings(run, state, "old/step_7", faults);
  return faults;
}

TEST(Continued, TakesOverWhatWasNotGiven) {
  const auto state = state_of(
      "--seed 7 --seq-length 24 --split 8,1,1 --dataloader-type cyclic --calculate-per-token-loss "
      "--optimizer "
      "sgd --adam-beta2 0.95 --clip-grad 0.5 --tokenizer-type NullTokenizer");
  config::Run run = run_of("--lr 1");
  EXPECT_THAT(faults_of(run, state), IsEmpty());
  EXPECT_EQ(run.training.seed, 7);
  EXPECT_EQ(run.training.seq_length, 24);
  EXPECT_EQ(run.data.split, "8,1,1");
  EXPECT_EQ(run.data.dataloader_type, "cyclic");
  EXPECT_TRUE(run.training.calculate_per_token_loss);
  EXPECT_EQ(run.optimizer.optimizer, config::OptimizerKind::kSgd);
  EXPECT_EQ(run.optimizer.adam_beta2, 0.95);
  EXPECT_EQ(run.data.tokenizer_type, "NullTokenizer");
  EXPECT_EQ(run.optimizer.clip_grad, 1.0);  // free: its own default
}

TEST(Continued, WhatContradictsIsToldWithBothValuesAndTheWayOut) {
  const auto state = state_of("--seed 7 --seq-length 24 --split 8,1,1");
  for (const char* flags : {"--seed 8", "--seq-length 32", "--split 9,1,1", "--dataloader-type cyclic",
                            "--calculate-per-token-loss", "--optimizer sgd", "--adam-beta1 0.8",
                            "--adam-beta2 0.95", "--sgd-momentum 0.5"}) {
    config::Run run = run_of(flags);
    const auto faults = faults_of(run, state);
    ASSERT_EQ(faults.size(), 1U) << flags;
    EXPECT_THAT(faults[0], HasSubstr(test::words(flags)[0] + ": a run that goes on must keep"));
  }
  config::Run run = run_of("--seed 8");
  EXPECT_THAT(faults_of(run, state)[0], AllOf(HasSubstr("got 8 from the command line and 7 in old/step_7"),
                                              HasSubstr("leave --seed out, or"), HasSubstr("--finetune")));
  run = run_of("--seed 7 --split 8.0,1,1");
  EXPECT_THAT(faults_of(run, state), IsEmpty());  // the same, written otherwise
}

TEST(Continued, WordsThatCouldNotBeReadAreNotHeldAgainstTheCheckpoint) {
  config::Run run = config::parse_all(test::words("gpt --seed x --seq-length y")).run;
  EXPECT_THAT(faults_of(run, state_of("--seed 7 --seq-length 24")), IsEmpty());
}

TEST(Continued, WithoutOptimizerStatesItsSettingsAreFree) {
  const auto state = state_of("--optimizer sgd --seed 7");
  config::Run run = run_of("--optimizer adam --adam-beta1 0.8 --no-load-optim");
  EXPECT_THAT(faults_of(run, state), IsEmpty());
  EXPECT_EQ(run.optimizer.optimizer, config::OptimizerKind::kAdam);
  EXPECT_EQ(run.training.seed, 7);
}

TEST(Continued, ChangesThatMayBeAreSaid) {
  const auto state = state_of("--clip-grad 0.5 --data-path /a /b --global-batch-size 8");
  const config::Run same = run_of("--clip-grad 0.5 --data-path /a /b --global-batch-size 8 --lr 1");
  EXPECT_THAT(changed_settings(same, state), IsEmpty());
  const config::Run other = run_of("--clip-grad 0.25 --data-path /a --global-batch-size 8 --bf16");
  EXPECT_THAT(changed_settings(other, state),
              ElementsAre(HasSubstr("--data-path: was /a /b in the checkpoint and is /a now"),
                          HasSubstr("--params-dtype: was fp32 in the checkpoint and is bf16 now"),
                          HasSubstr("--clip-grad: was 0.5 in the checkpoint and is 0.25 now")));
}

TEST(Continued, KeptPathsAreFoundFromAnotherFolder) {
  const config::Run run = with_absolute_paths(
      run_of("--data-path 0.3 a/b 0.7 /c/../d --tokenizer-type SentencePieceTokenizer --tokenizer-model t"));
  const std::string here = std::filesystem::current_path().string();
  EXPECT_THAT(run.data.data_path, ElementsAre("0.3", here + "/a/b", "0.7", "/d"));
  EXPECT_EQ(run.data.tokenizer_model, here + "/t");
  EXPECT_EQ(run.data.data_cache_path, "");
}

TEST(Continued, ATokenizerOfTheSameSizeIsToldFromAnother) {
  const checkpoint::test::TempFolder folder;
  const std::string changed = (folder.path() / "t.model").string();
  // A field that SentencePiece does not know: the same pieces, other bytes.
  write_file_atomically(changed, read_file(kSentencePiece) + std::string("\xa0\x06\x01", 3));
  const auto with = [](const std::string& file) {
    return run_of("--tokenizer-type SentencePieceTokenizer --tokenizer-model " + file);
  };
  const config::Run run = with(kSentencePiece);
  const auto tokenizer = tokenizer_of(run);
  const nlohmann::json state = {{"settings", config::values(run)},
                                {"tokenizer", tokenizer_state(run, tokenizer.get())}};
  EXPECT_EQ(state.at("tokenizer").at("vocab_size"), 2400);
  EXPECT_EQ(state.at("tokenizer").at("eos_token_id"), tokenizer->eod());
  EXPECT_EQ(tokenizer_fault(run, state, "x"), "");
  ASSERT_EQ(tokenizer_of(with(changed))->vocab_size(), 2400);
  EXPECT_THAT(tokenizer_fault(with(changed), state, "old/step_7"),
              AllOf(HasSubstr("the one of old/step_7"), HasSubstr(changed), HasSubstr(kSentencePiece)));
  EXPECT_THAT(tokenizer_fault(run_of("--tokenizer-type NullTokenizer"), state, "x"),
              HasSubstr("got NullTokenizer and SentencePieceTokenizer"));
  EXPECT_EQ(tokenizer_fault(run_of(""), state, "x"), "");
  config::Run going_on = with(changed);
  EXPECT_EQ(faults_of(going_on, state).size(), 1U);
  EXPECT_EQ(tokenizer_state(run, nullptr), nullptr);
}

}  // namespace
}  // namespace colonnade::job
