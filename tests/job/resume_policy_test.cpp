// Settings that a resumed run keeps or may change, and the identity of a checkpoint's tokenizer.
#include "colonnade/job/resume_policy.h"
#include "colonnade/data/samples/gpt/gpt_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "checkpoint/fixtures.h"
#include "colonnade/base/files.h"
#include "colonnade/config/dump.h"
#include "colonnade/job/prepare.h"
#include "job/runs.h"
#include "support/vectors.h"

namespace colonnade::job {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::string kSentencePiece = test::vectors() + "/tokenizers/sp_unigram.model";

config::Run run_of(const std::string& flags) { return config::parse(test::words("gpt " + flags)); }

/// The state of a run with these flags.
nlohmann::json state_of(const std::string& flags) {
  const config::Run run = run_of(flags);
  return {{"settings", config::values(run)}};
}

std::vector<std::string> faults_of(config::Run& run, const nlohmann::json& state) {
  std::vector<std::string> faults;
  resume_settings(run, state, "old/step_7", faults);
  return faults;
}

TEST(ResumePolicy, ResumesSettingsThatWereNotGiven) {
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
  EXPECT_EQ(run.optimizer.clip_grad, 1.0);  // changeable: its own default
}

TEST(ResumePolicy, UseCheckpointArgsReplacesGivenDropoutAndTokenizer) {
  const auto state = state_of("--hidden-dropout 0.25 --tokenizer-type NullTokenizer --seed 7");
  const std::string given = "--hidden-dropout 0.5 --tokenizer-type GPT2BPETokenizer --vocab-file v";
  config::Run run = run_of("--use-checkpoint-args " + given);
  EXPECT_THAT(faults_of(run, state), IsEmpty());
  EXPECT_EQ(run.model.hidden_dropout, 0.25);
  EXPECT_EQ(run.data.tokenizer_type, "NullTokenizer");
  EXPECT_EQ(run.data.vocab_file, "") << "a tokenizer's settings are taken together";
  EXPECT_THAT(run.notes, testing::Contains(AllOf(HasSubstr("--hidden-dropout: "),
                                                 HasSubstr("takes 0.25 from old/step_7"),
                                                 HasSubstr("got 0.5 from the command line"))));
  EXPECT_THAT(run.notes,
              testing::Contains("--vocab-file: --use-checkpoint-args takes none from old/step_7; got v "
                                "from the command line"));
  config::Run kept = run_of(given);
  EXPECT_THAT(faults_of(kept, state), IsEmpty());
  EXPECT_EQ(kept.model.hidden_dropout, 0.5);
  EXPECT_EQ(kept.data.tokenizer_type, "GPT2BPETokenizer");
  config::Run order = run_of("--use-checkpoint-args --seed 8");
  EXPECT_THAT(faults_of(order, state),
              ElementsAre(HasSubstr("--seed must keep its value when a run resumes")));
}

TEST(ResumePolicy, TokenizerOfTheCheckpointCanBeIgnored) {
  const auto state = state_of("--tokenizer-type NullTokenizer");
  const std::string off = "--no-use-tokenizer-model-from-checkpoint-args";
  config::Run none = run_of(off);
  EXPECT_THAT(faults_of(none, state), IsEmpty());
  EXPECT_EQ(none.data.tokenizer_type, "");
  config::Run own = run_of(off + " --use-checkpoint-args --tokenizer-type GPT2BPETokenizer");
  EXPECT_THAT(faults_of(own, state), IsEmpty());
  EXPECT_EQ(own.data.tokenizer_type, "GPT2BPETokenizer");
}

TEST(ResumePolicy, SpecialTokensInTextsMustStayWithFim) {
  const std::string flag = "--tokenizer-hf-no-include-special-tokens";
  const auto fim = state_of(flag + " --fim-data"), plain = state_of(flag);
  config::Run resumed = run_of("--lr 1");
  EXPECT_THAT(faults_of(resumed, fim), IsEmpty());
  EXPECT_FALSE(resumed.data.tokenizer_hf_include_special_tokens);
  config::Run other = run_of("--tokenizer-hf-include-special-tokens");
  EXPECT_THAT(faults_of(other, fim),
              ElementsAre(HasSubstr("because it decides the fill-in-the-middle format")));
  other = run_of("--tokenizer-hf-include-special-tokens");
  EXPECT_THAT(faults_of(other, plain), IsEmpty());
}

TEST(ResumePolicy, ConflictsAreReportedWithBothValuesAndAFix) {
  const auto state = state_of("--seed 7 --seq-length 24 --split 8,1,1");
  for (const char* flags :
       {"--seed 8", "--seq-length 32", "--split 9,1,1", "--dataloader-type cyclic",
        "--calculate-per-token-loss", "--optimizer sgd", "--adam-beta1 0.8", "--adam-beta2 0.95",
        "--sgd-momentum 0.5", "--lion-beta2 0.9", "--mid-level-dataset-surplus 3", "--mask-prob 0.3",
        "--short-seq-prob 0.5", "--vocab-extra-ids 20", "--decoder-seq-length 12"}) {
    config::Run run = run_of(flags);
    const auto faults = faults_of(run, state);
    ASSERT_EQ(faults.size(), 1U) << flags;
    EXPECT_THAT(faults[0], HasSubstr(test::words(flags)[0] + " must keep its value when a run resumes"));
  }
  config::Run run = run_of("--seed 8");
  EXPECT_THAT(faults_of(run, state)[0], AllOf(HasSubstr("got 8 from the command line and 7 in old/step_7"),
                                              HasSubstr("remove --seed, or"), HasSubstr("--finetune")));
  run = run_of("--seed 7 --split 8.0,1,1");
  EXPECT_THAT(faults_of(run, state), IsEmpty());  // the same value in another notation
}

TEST(ResumePolicy, SwitchedOffSwitchIsNamedByItsOffFlag) {
  const std::string off = "--tokenizer-hf-no-include-special-tokens";
  config::Run run = run_of(off);
  EXPECT_THAT(faults_of(run, state_of("--fim-data")),
              ElementsAre(AllOf(HasSubstr(off + " must keep its value when a run resumes"),
                                HasSubstr("got true from the command line and false in old/step_7"),
                                HasSubstr("remove " + off))));
}

TEST(ResumePolicy, UnreadableValuesAreNotComparedWithTheCheckpoint) {
  config::Run run = config::parse_all(test::words("gpt --seed x --seq-length y")).run;
  EXPECT_THAT(faults_of(run, state_of("--seed 7 --seq-length 24")), IsEmpty());
}

TEST(ResumePolicy, NoLoadOptimReleasesOptimizerSettings) {
  const auto state = state_of("--optimizer sgd --seed 7");
  config::Run run = run_of("--optimizer adam --adam-beta1 0.8 --no-load-optim");
  EXPECT_THAT(faults_of(run, state), IsEmpty());
  EXPECT_EQ(run.optimizer.optimizer, config::OptimizerKind::kAdam);
  EXPECT_EQ(run.training.seed, 7);
}

TEST(ResumePolicy, PermittedChangesAreReported) {
  const auto state = state_of("--clip-grad 0.5 --data-path /a /b --global-batch-size 8");
  const config::Run same = run_of("--clip-grad 0.5 --data-path /a /b --global-batch-size 8 --lr 1");
  EXPECT_THAT(changed_settings(same, state), IsEmpty());
  const config::Run other = run_of("--clip-grad 0.25 --data-path /a --global-batch-size 8 --bf16");
  EXPECT_THAT(changed_settings(other, state),
              ElementsAre(HasSubstr("--data-path: was /a /b in the checkpoint and is /a now"),
                          HasSubstr("--params-dtype: was fp32 in the checkpoint and is bf16 now"),
                          HasSubstr("--clip-grad: was 0.5 in the checkpoint and is 0.25 now")));
  EXPECT_THAT(
      changed_settings(run_of("--adam-eps 1e-6 --clip-grad 0.5 --apply-wd-to-qk-layernorm"), state_of("")),
      ElementsAre("--clip-grad: was 1 in the checkpoint and is 0.5 now: steps differ",
                  "--adam-eps: was 1e-08 in the checkpoint and is 1e-06 now: steps differ",
                  "--apply-wd-to-qk-layernorm: was false in the checkpoint and is true now: steps differ"));
  EXPECT_THAT(
      changed_settings(run_of("--use-precision-aware-optimizer --exp-avg-dtype bf16"), state_of("")),
      ElementsAre("--exp-avg-dtype: was fp32 in the checkpoint and is bf16 now: the optimizer states are "
                  "converted"));
  EXPECT_THAT(changed_settings(run_of("--apply-query-key-layer-scaling"), state_of("")),
              ElementsAre(HasSubstr("true now: scores are rounded differently")));
  EXPECT_THAT(
      changed_settings(run_of("--full-validation"), state_of("")),
      ElementsAre("--full-validation: was false in the checkpoint and is true now: validation losses are "
                  "not comparable"));
}

TEST(ResumePolicy, LossScaleSettingsAreResumedOrReported) {
  const auto state = state_of("--fp16 --loss-scale-window 2000 --hysteresis 4 --micro-batch-size 4");
  config::Run run = run_of("--hysteresis 3 --micro-batch-size 2");
  EXPECT_THAT(faults_of(run, state), IsEmpty());
  EXPECT_EQ(run.optimizer.loss_scale_window, 2000);
  EXPECT_THAT(changed_settings(run, state),
              ElementsAre("--hysteresis: was 4 in the checkpoint and is 3 now: the "
                          "loss scale is updated differently"));
  run.data.eod_mask_loss = true;
  EXPECT_THAT(
      changed_settings(run, state),
      testing::Contains(HasSubstr(
          "--micro-batch-size: was 4 in the checkpoint and is 2 now: loss weights of tokens change")));
}

TEST(ResumePolicy, PrecisionIsResumedOrGiven) {
  const auto state = state_of("--bf16");
  config::Run run = run_of("");
  EXPECT_THAT(faults_of(run, state), IsEmpty());
  EXPECT_EQ(run.model.params_dtype, config::Dtype::kBfloat16);
  for (const char* flags : {"--no-bf16", "--params-dtype fp32"}) {
    run = run_of(flags);
    EXPECT_THAT(faults_of(run, state), IsEmpty());
    EXPECT_EQ(run.model.params_dtype, config::Dtype::kFloat32) << flags;
    EXPECT_THAT(changed_settings(run, state), ElementsAre(HasSubstr("--params-dtype: was bf16")));
  }
}

TEST(ResumePolicy, Fp32ResidualStreamIsResumedOrGiven) {
  const auto state = state_of("--bf16 --fp32-residual-connection");
  config::Run run = run_of("");
  EXPECT_THAT(faults_of(run, state), IsEmpty());
  EXPECT_TRUE(run.model.fp32_residual_connection);
  run = run_of("--no-fp32-residual-connection");
  EXPECT_THAT(faults_of(run, state), IsEmpty());
  EXPECT_FALSE(run.model.fp32_residual_connection);
  EXPECT_THAT(changed_settings(run, state), ElementsAre(HasSubstr("--fp32-residual-connection: was true")));
}

TEST(ResumePolicy, NewPrecisionReportsWhichWeightsAreKept) {
  const auto state = state_of("--bf16");
  EXPECT_THAT(changed_settings(run_of("--params-dtype fp32"), state),
              ElementsAre(HasSubstr("the fp32 weights are kept")));
  EXPECT_THAT(changed_settings(run_of("--params-dtype fp32 --no-load-optim"), state),
              ElementsAre(AllOf(HasSubstr("was bf16 in the checkpoint and is fp32 now"),
                                HasSubstr("the optimizer's fp32 weights are not loaded"),
                                Not(HasSubstr("are kept")))));
}

/// Reported changes of the sample order of a run over real data; `now` receives its state for the next run.
std::vector<std::string> order_changes(const std::string& flags, const nlohmann::json& state,
                                       nlohmann::json& now) {
  config::Run run = run_of("--seq-length 64 --global-batch-size 8 --eval-iters 1 --split 1,0,0 " + flags);
  const auto splits = data::open_gpt_batches(run.data, run.training, {.vocab_size = 1025, .eod = 1024});
  now = {{"settings", config::values(with_absolute_paths(run))}, {"data", data_state(splits)}};
  return changed_orders(run, now.at("data"), state);
}

TEST(ResumePolicy, ChangedSampleOrderIsReported) {
  const checkpoint::test::TempFolder folder;
  const std::string indexed = test::vectors() + "/indexed/";
  const std::string cache = " --data-cache-path " + folder.path().string();
  const std::string data = "--data-path " + indexed + "gpt2_uint16" + cache;
  nlohmann::json was, now;
  EXPECT_THAT(order_changes(data + " --train-iters 20", {}, was), IsEmpty());  // a checkpoint without "data"
  // One epoch has 712 samples: 80 iterations of 8 fit in it, 100 do not.
  EXPECT_THAT(order_changes(data + " --train-iters 80", was, now), IsEmpty());
  EXPECT_THAT(
      order_changes(data + " --train-iters 100", was, now),
      ElementsAre(AllOf(HasSubstr("gpt2_uint16: was read once for 160 samples of the train data in the "
                                  "checkpoint and is now read 2 times for 800 samples"),
                        HasSubstr("the order of samples changes"))));
  EXPECT_THAT(order_changes(data + " --train-iters 20", now, was),
              ElementsAre(HasSubstr("read once for 160")));
  // Also two epochs, but the second one is used in full and shuffled with the first.
  EXPECT_THAT(order_changes(data + " --train-iters 175", now, was),
              ElementsAre(HasSubstr("is now read 2 times for 1400 samples")));
  // Other data is reported as a change of --data-path, not as a change of order.
  EXPECT_THAT(order_changes("--data-path " + indexed + "gpt_uint16 --train-iters 100" + cache, was, now),
              IsEmpty());
}

TEST(ResumePolicy, ChangedTokensAreReportedPerDatasetAndNotAsAnOrder) {
  const checkpoint::test::TempFolder folder;
  const std::string flags =
      "--data-path " + test::vectors() +
      "/indexed/gpt2_uint16 --dataloader-type cyclic --train-iters 80 --data-cache-path " +
      folder.path().string();
  nlohmann::json was, now;
  (void)order_changes(flags, {}, was);
  const config::Run run = run_of(flags);
  EXPECT_THAT(changed_tokens(run, was.at("data"), was), IsEmpty());
  now = was;
  json& split = now.at("data").at("train");
  const std::int64_t tokens = split.at("sets")[0].at("tokens");
  split.at("sets")[0]["tokens"] = 7;
  split.at("sets")[0]["passes"] = 3;
  split["permuted"] = 8;
  split.at("sets").push_back(split.at("sets")[0]);  // a blend with the dataset twice
  was.at("data").at("train").at("sets").push_back(was.at("data").at("train").at("sets")[0]);
  now["data"]["valid"] = was["data"]["valid"] = was.at("data").at("train");
  const auto changed = changed_tokens(run, now.at("data"), was);
  ASSERT_EQ(changed.size(), 1U);
  EXPECT_THAT(changed[0].name, HasSubstr("gpt2_uint16"));
  EXPECT_THAT(changed[0].parts, ElementsAre(ChangedTokens::Part{"train", tokens, 7}));
  EXPECT_THAT(changed_orders(run, now.at("data"), was), IsEmpty())
      << "epochs and permutation follow from the tokens";
}

TEST(ResumePolicy, ChangedOrderOfABlendOrCyclicRunIsReported) {
  const checkpoint::test::TempFolder folder;
  const std::string indexed = test::vectors() + "/indexed/";
  const std::string data = "--train-iters 100 --data-cache-path " + folder.path().string() + " --data-path ";
  const std::string blend = data + "0.9 " + indexed + "gpt2_uint16 0.1 " + indexed + "gpt_uint16";
  nlohmann::json was, now;
  (void)order_changes(blend, {}, was);
  EXPECT_EQ(was.at("data").at("train").at("sets").size(), 2U);
  EXPECT_THAT(order_changes(blend, was, now), IsEmpty());
  EXPECT_THAT(order_changes(blend + " --mid-level-dataset-surplus 3", was, now),
              ElementsAre(HasSubstr("gpt2_uint16: was read 2 times")));
  const std::string cyclic = data + indexed + "gpt_uint16 --dataloader-type cyclic ";  // 883 samples
  (void)order_changes(cyclic, {}, was);
  EXPECT_THAT(order_changes(cyclic, was, now), IsEmpty());
  EXPECT_THAT(order_changes(cyclic + "--global-batch-size 7", was, now),
              ElementsAre(HasSubstr(
                  "permuted 880 samples of the train data in the checkpoint and now permutes 882")));
}

TEST(ResumePolicy, ChangedDataOfOneSplitDoesNotHideTheOrderOfAnother) {
  const checkpoint::test::TempFolder folder;
  const std::string indexed = test::vectors() + "/indexed/";
  const std::string train = "--data-cache-path " + folder.path().string() + " --train-data-path " + indexed +
                            "gpt2_uint16 --valid-data-path " + indexed;
  nlohmann::json was, now;
  EXPECT_THAT(order_changes(train + "gpt2_uint16 --train-iters 80", {}, was), IsEmpty());
  ASSERT_TRUE(was.at("data").contains("valid"));
  EXPECT_THAT(order_changes(train + "gpt_uint16 --train-iters 80", was, now), IsEmpty());
  EXPECT_THAT(order_changes(train + "gpt_uint16 --train-iters 100", was, now),
              ElementsAre(HasSubstr("gpt2_uint16: was read once for 640 samples of the train data")));
}

TEST(ResumePolicy, SavedPathsAreAbsolute) {
  const config::Run run = with_absolute_paths(
      run_of("--data-path 0.3 a/b 0.7 /c/../d --valid-data-path v --tokenizer-type SentencePieceTokenizer "
             "--tokenizer-model t --data-cache-path c --save 7 --load l/../m --pretrained-checkpoint p "
             "--tensorboard-dir tb"));
  const std::string here = std::filesystem::current_path().string();
  EXPECT_THAT(run.data.data_path, ElementsAre("0.3", here + "/a/b", "0.7", "/d"));
  EXPECT_THAT(run.data.valid_data_path, ElementsAre(here + "/v"));
  EXPECT_EQ(run.data.tokenizer_model, here + "/t");
  EXPECT_EQ(run.data.data_cache_path, here + "/c");
  EXPECT_EQ(run.checkpoint.save, here + "/7");
  EXPECT_EQ(run.checkpoint.load, here + "/m");
  EXPECT_EQ(run.checkpoint.pretrained_checkpoint, here + "/p");
  EXPECT_EQ(run.logging.tensorboard_dir, here + "/tb");
  EXPECT_EQ(with_absolute_paths(run_of("")).logging.tensorboard_dir, "");
}

TEST(ResumePolicy, TokenizersOfTheSameSizeAreDistinguished) {
  const checkpoint::test::TempFolder folder;
  const std::string changed = (folder.path() / "t.model").string();
  // An unknown protobuf field: the same pieces, other bytes.
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
  config::Run resumed = with(changed);
  EXPECT_EQ(faults_of(resumed, state).size(), 1U);
  EXPECT_EQ(tokenizer_state(run, nullptr), nullptr);
}

TEST(ResumePolicy, EditedChatTemplateIsDetected) {
  const checkpoint::test::TempFolder folder;
  const fs::path vectors = test::vectors();
  fs::copy_file(vectors / "tokenizers/qwen2_bpe.json", folder.path() / "tokenizer.json");
  const fs::path jinja = folder.path() / "chat_template.jinja";
  fs::copy_file(vectors / "chat/templates/chatml.jinja", jinja);
  const config::Run run =
      run_of("--sft --tokenizer-type HuggingFaceTokenizer --tokenizer-model " + folder.path().string());
  nlohmann::json state = {{"settings", config::values(with_absolute_paths(run))},
                          {"tokenizer", tokenizer_state(run, tokenizer_of(run).get())}};
  EXPECT_EQ(template_fault(run, state, "x"), "");
  write_file_atomically(jinja, read_file(jinja) + "edited");
  EXPECT_EQ(tokenizer_fault(run, state, "x"), "");
  const std::string fault = template_fault(run, state, "old/step_7");
  EXPECT_THAT(fault,
              AllOf(HasSubstr("--chat-template must keep its text when a run resumes"),
                    HasSubstr(folder.path().string()), HasSubstr("in old/step_7"), HasSubstr("--finetune")));
  config::Run resumed = run;
  EXPECT_THAT(faults_of(resumed, state), ElementsAre(fault));
  state.at("tokenizer").erase("chat_template_xxh3_128");
  EXPECT_EQ(template_fault(run, state, "x"), "") << "an older checkpoint without the checksum";
  EXPECT_NE(tokenizer_state(run, tokenizer_of(run).get()).at("chat_template_xxh3_128"), "");
}

}  // namespace
}  // namespace colonnade::job
