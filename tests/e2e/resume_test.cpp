// Runs that resume from a checkpoint, and verbs that read one: kept settings, notes and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "program.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kVectors = test::vectors();

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

Words steps(int last, const fs::path& save, const Words& more = {}) {
  return small_gpt() +
         Words{"--eval-iters", "0", "--train-iters", std::to_string(last), "--save", save.string()} + more;
}

Result pretrain(const Words& words, const fs::path& folder = {}) { return run(colonnade(words), {}, folder); }

TEST(Resume, ConflictingSettingsAreRejectedTogether) {
  const TempFolder folder;
  const std::string here = folder.path().string();
  ASSERT_EQ(pretrain(steps(2, folder.path(), {"--seed", "7"})).code, 0);
  const Result refused = pretrain(
      steps(4, folder.path(), {"--load", here, "--seed", "8", "--split", "1,1,1", "--optimizer", "sgd"}));
  EXPECT_EQ(refused.code, 2) << refused.text;
  EXPECT_THAT(refused.text,
              AllOf(HasSubstr("--seed must keep its value when a run resumes"),
                    HasSubstr("got 8 from the command line and 7"), HasSubstr("--split must keep its value"),
                    HasSubstr("--optimizer must keep its value"), HasSubstr("--no-load-optim")));
  // When not given, the seed is that of the run; permitted changes are reported.
  const Result more = pretrain(steps(4, folder.path(), {"--load", here, "--clip-grad", "0.5"}));
  EXPECT_EQ(more.code, 0) << more.text;
  EXPECT_THAT(more.text, HasSubstr("--clip-grad: was 1 in the checkpoint and is 0.5 now"));
  EXPECT_THAT(read_text(folder / "config.yaml"), HasSubstr("\nseed: 7\n"));
  const Result fresh = pretrain(steps(2, folder / "other", {"--load", here, "--seed", "8", "--finetune"}));
  EXPECT_EQ(fresh.code, 0) << fresh.text;
}

TEST(Resume, WithoutOptimizerStatesTheScheduleRestarts) {
  const TempFolder folder;
  ASSERT_EQ(pretrain(steps(2, folder.path())).code, 0);
  const Result more =
      pretrain(steps(3, folder.path(), {"--load", folder.path().string(), "--no-load-optim"}));
  EXPECT_EQ(more.code, 0) << more.text;
  EXPECT_THAT(more.text, HasSubstr("optimizer states, loss scale and learning-rate schedule restart"));
  const auto lines = metrics(folder.path());
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[2].at("learning_rate"), lines[0].at("learning_rate"));
  EXPECT_NE(lines[2].at("learning_rate"), lines[1].at("learning_rate"));
}

TEST(Resume, CompleteRunIsReported) {
  const TempFolder folder;
  ASSERT_EQ(pretrain(steps(2, folder.path())).code, 0);
  const Result again = pretrain(steps(2, folder.path(), {"--load", folder.path().string()}));
  EXPECT_EQ(again.code, 0) << again.text;
  EXPECT_THAT(again.text,
              AllOf(HasSubstr("the run is complete: iteration 2 of 2; raise --train-iters to continue"),
                    Not(HasSubstr("saved "))));
  EXPECT_EQ(iterations(folder.path()), (std::vector{1, 2}));
}

TEST(Resume, CompleteRunOfAnotherFolderIsSaved) {
  const TempFolder folder;
  const char* step = "checkpoints/step_00000002";
  ASSERT_EQ(pretrain(steps(2, folder / "a")).code, 0);
  for (const fs::path& load : {folder / "a", folder / "a" / step}) {
    const fs::path save = folder / ("b" + std::to_string(load.string().size()));
    const Result result = pretrain(steps(2, save, {"--load", load.string()}));
    EXPECT_EQ(result.code, 0) << result.text;
    EXPECT_EQ(differences(save / step, folder / "a" / step), Words{});
  }
}

TEST(Resume, FailingLastSaveIsAttemptedOnce) {
  const TempFolder folder;
  std::string command = "ulimit -f 200; exec";  // file size limit of 200 KiB
  for (const std::string& word : colonnade(steps(2, folder.path()))) command += " '" + word + "'";
  const Result result = run({"bash", "-c", command});
  EXPECT_EQ(result.code, 2) << result.text;  // a full disk counts as a settings error
  EXPECT_EQ(count(result.text, "saving the checkpoint of iteration"), 1U) << result.text;
}

TEST(Resume, EvaluatesWithoutTrainingAndWithoutACheckpoint) {
  const TempFolder folder;
  const Words words =
      small_gpt() +
      Words{"--eval-iters", "2", "--skip-train", "--eval-interval", "2", "--save", folder.path().string()};
  const Result result = pretrain(words);
  EXPECT_EQ(result.code, 0) << result.text;
  EXPECT_EQ(count(read_text(folder / "validation.jsonl"), "\"validation\""), 1U);
  EXPECT_TRUE(fs::is_empty(folder / "checkpoints"));  // there is nothing new to save
}

TEST(Resume, SkipTrainReadsItsOwnSamplesAndDoesNotChangeTheRun) {
  const TempFolder folder;
  const Words data{"--eval-interval", "2", "--eval-iters", "1", "--save", (folder / "run").string()};
  ASSERT_EQ(pretrain(small_gpt() + data + Words{"--train-iters", "3", "--save-interval", "1"}).code, 0);
  const std::string settings = read_text(folder / "run/config.yaml");
  const std::string metrics = read_text(folder / "run/metrics.jsonl");
  const std::string trained = read_text(folder / "run/validation.jsonl");
  const Result again =
      pretrain(small_gpt() + data + Words{"--skip-train", "--load", (folder / "run").string()});
  EXPECT_EQ(again.code, 0) << again.text;
  EXPECT_EQ(read_text(folder / "run/config.yaml"), settings);
  EXPECT_EQ(read_text(folder / "run/metrics.jsonl"), metrics);
  // The validation after iteration 3, between two regular ones, is the one that ended the run.
  const auto loss = [](const std::string& line) { return line.substr(line.find("loss"), 24); };
  const std::string added = read_text(folder / "run/validation.jsonl").substr(trained.size());
  const std::size_t last = trained.rfind("\"validation\"");
  ASSERT_NE(last, std::string::npos);
  EXPECT_EQ(loss(added.substr(added.find("\"validation\""))), loss(trained.substr(last)));
}

TEST(Resume, DamagedWeightsAreRejectedByEveryVerb) {
  const TempFolder folder;
  ASSERT_EQ(pretrain(steps(2, folder / "run")).code, 0);
  const fs::path step = folder / "run/checkpoints/step_00000002";
  std::string bytes = read_text(step / "model.safetensors");
  bytes[bytes.size() / 2] ^= 1;
  write_text(step / "model.safetensors", bytes);
  for (const std::string& path : {step.string(), (folder / "run").string()}) {
    const Words pretrained{"--pretrained-checkpoint", path};
    for (const Words& words : {steps(2, folder / "other", pretrained),
                               Words{"evaluate", "--mock-data", "--seq-length", "32"} + pretrained,
                               Words{"generate", "--prompt", "1 2"} + pretrained}) {
      const Result result = pretrain(words);
      EXPECT_EQ(result.code, 3) << words[0] << ": " << result.text;
      EXPECT_THAT(result.text, HasSubstr("model.safetensors"));
    }
  }
}

/// A model with a SentencePiece tokenizer that is named by a path relative to `folder`.
Words with_tokenizer(const fs::path& folder, const Words& more) {
  fs::create_directories(folder);
  fs::copy_file(kVectors + "/tokenizers/sp_unigram.model", folder / "t.model");
  return steps(2, "run",
               Words{"--tokenizer-type", "SentencePieceTokenizer", "--tokenizer-model", "t.model",
                     "--vocab-size", "2400"} +
                   more);
}

TEST(Resume, TokenizerIsFoundFromAnotherFolder) {
  const TempFolder folder;
  const Result made = pretrain(with_tokenizer(folder / "a", {}), folder / "a");
  ASSERT_EQ(made.code, 0) << made.text;
  const std::string load = (folder / "a/run").string();
  const Result text =
      pretrain({"generate", "--load", load, "--prompt", "In", "--max-new-tokens", "2"}, folder.path());
  EXPECT_EQ(text.code, 0) << text.text;
  EXPECT_THAT(read_text(folder / "a/run/config.yaml"), HasSubstr((folder / "a/t.model").string()));
}

TEST(Resume, AnotherTokenizerOfTheSameSizeIsRejected) {
  const TempFolder folder;
  ASSERT_EQ(pretrain(with_tokenizer(folder / "a", {}), folder / "a").code, 0);
  // An unknown protobuf field: the same pieces, other bytes.
  write_text(folder / "u.model", read_text(folder / "a/t.model") + "\xa0\x06\x01");
  const Words other{"--load",
                    (folder / "a/run").string(),
                    "--tokenizer-type",
                    "SentencePieceTokenizer",
                    "--tokenizer-model",
                    (folder / "u.model").string()};
  for (const Words& words : {steps(4, folder / "a/run", other), Words{"evaluate"} + other,
                             Words{"generate", "--prompt", "In"} + other}) {
    const Result result = pretrain(words);
    EXPECT_EQ(result.code, 2) << words[0] << ": " << result.text;
    EXPECT_THAT(result.text, AllOf(HasSubstr("the tokenizer must be the one of"), HasSubstr("u.model"),
                                   HasSubstr("t.model")));
  }
}

TEST(Resume, ChangedSampleOrderIsReported) {
  const TempFolder folder;
  const auto words = [&](int last, const Words& more) {  // one epoch has about 440 steps
    Words all =
        steps(last, folder / "run",
              {"--vocab-size", "1152", "--split", "1,0,0", "--data-cache-path", (folder / "cache").string(),
               "--exit-interval", "1", "--data-path", kVectors + "/indexed/gpt_uint16"});
    all.erase(std::find(all.begin(), all.end(), "--mock-data"));
    return all + more;
  };
  const Words load{"--load", (folder / "run").string()};
  ASSERT_EQ(pretrain(words(400, {})).code, 0);
  const Result same = pretrain(words(410, load));
  EXPECT_EQ(same.code, 0) << same.text;
  EXPECT_THAT(same.text, Not(HasSubstr("the order of samples")));
  const Result longer = pretrain(words(500, load));
  EXPECT_EQ(longer.code, 0) << longer.text;
  EXPECT_THAT(longer.text, AllOf(HasSubstr("was read once for 1640 samples of the train data"),
                                 HasSubstr("is now read 2 times for 2000 samples: the order of samples "
                                           "changes")));
}

TEST(Resume, ChangedDataIsReportedOncePerDataset) {
  const TempFolder folder;
  const auto put = [&](const std::string& vector) {
    for (const char* end : {".bin", ".idx"})
      fs::copy_file(kVectors + "/indexed/" + vector + end, folder / (std::string("d") + end),
                    fs::copy_options::overwrite_existing);
  };
  const auto words = [&](int last, const Words& more) {
    Words all = steps(last, folder / "run",
                      {"--vocab-size", "1152", "--split", "8,1,1", "--data-cache-path",
                       (folder / "cache").string(), "--data-path", (folder / "d").string()});
    all.erase(std::find(all.begin(), all.end(), "--mock-data"));
    return all + more;
  };
  const Words load{"--load", (folder / "run").string()};
  put("gpt_uint16");
  ASSERT_EQ(pretrain(words(2, {})).code, 0);
  put("gpt2_uint16");
  const Result changed = pretrain(words(4, load));
  EXPECT_EQ(changed.code, 0) << changed.text;
  EXPECT_EQ(count(changed.text, "warning: " + (folder / "d").string()), 1U) << changed.text;
  EXPECT_THAT(changed.text,
              AllOf(HasSubstr("d: changed since the checkpoint: train tokens "),
                    HasSubstr("; since the session of 20"), HasSubstr(", which made the checkpoint: d.bin "),
                    HasSubstr("; d.idx "), HasSubstr(": sample indices continue in the new data"),
                    HasSubstr("data audit")));
  const Result again = pretrain(words(6, load));
  EXPECT_EQ(again.code, 0) << again.text;
  EXPECT_THAT(again.text, Not(HasSubstr("changed since")));
  put("gpt_uint16");
  const Result first = pretrain(words(6, load + Words{"--ckpt-step", "2"}));
  EXPECT_EQ(first.code, 0) << first.text;
  EXPECT_THAT(first.text, Not(HasSubstr("d: changed since"))) << "the checkpoint was made from this data";
  put("gpt2_uint16");
  ASSERT_EQ(pretrain(words(8, load)).code, 0);
  put("gpt_uint16");
  const Result validates =
      pretrain(words(8, load + Words{"--skip-train", "--eval-iters", "1", "--eval-interval", "2"}));
  EXPECT_EQ(validates.code, 0) << validates.text;
  EXPECT_THAT(validates.text, HasSubstr("d: changed since the checkpoint: train tokens "));
}

TEST(Resume, TooShortUnweightedBlendIsReportedBeforeTheFirstStep) {
  const TempFolder folder;
  const std::string data = kVectors + "/indexed/gpt_uint16";
  const Words words = [&] {
    Words all = steps(100'000, folder / "run",
                      {"--vocab-size", "1152", "--split", "1,0,0", "--data-cache-path",
                       (folder / "cache").string(), "--data-path", data, data});
    all.erase(std::find(all.begin(), all.end(), "--mock-data"));
    return all;
  }();
  const Result refused = pretrain(words);
  EXPECT_EQ(refused.code, 2) << refused.text;
  EXPECT_THAT(refused.text, AllOf(HasSubstr("--train-iters: the training data must hold"),
                                  HasSubstr("at most --train-iters "), HasSubstr("WEIGHT PREFIX")));
  EXPECT_FALSE(fs::exists(folder / "run"));
}

}  // namespace
}  // namespace colonnade::e2e
