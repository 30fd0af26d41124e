// Runs with files of data paths, whose contents they keep, and with an ambiguous pad token; inspections that
// find the samples of a run from its settings.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "data_runs.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kVectors = test::vectors();

void write(const std::filesystem::path& path, const std::string& text) { std::ofstream(path) << text; }

TEST(DataWays, FilesOfPathsAreReadOnceAndKept) {
  const TempFolder folder;
  const Words numbers{"--tokenizer-type=NullTokenizer", "--vocab-size=1025", "--split=1"};
  const Words blend{"0.3", kVectors + "/indexed/gpt_uint16", "0.7", kVectors + "/indexed/gpt2_uint16"};
  ASSERT_EQ(run(colonnade(small(folder, "typed", numbers + Words{"--data-path"} + blend))).code, 0);
  write(folder / "words", blend[0] + " " + blend[1] + "\n" + blend[2] + "\t" + blend[3] + "\n");
  const Words file{"--data-args-path", (folder / "words").string()};
  const Result read = run(colonnade(small(folder, "read", numbers + file)));
  ASSERT_EQ(read.code, 0) << read.text;
  EXPECT_EQ(losses(folder, "read"), losses(folder, "typed"));
  // The run's settings now contain the data paths: the file is not needed any more.
  std::filesystem::remove(folder / "words");
  EXPECT_NE(read_text(folder / "read/config.yaml").find(blend[3]), std::string::npos);
  const Result again = run(colonnade({"pretrain", "--config", (folder / "read/config.yaml").string()}));
  EXPECT_EQ(again.code, 0) << again.text;
  write(folder / "splits.json", R"({"train": [0.3, ")" + blend[1] + R"(", 0.7, ")" + blend[3] +
                                    R"("], "valid": null, "test": null})");
  const Words splits{"--tokenizer-type=NullTokenizer", "--vocab-size=1025", "--per-split-data-args-path",
                     (folder / "splits.json").string()};
  const Result split = run(colonnade(small(folder, "split", splits)));
  ASSERT_EQ(split.code, 0) << split.text;
  EXPECT_EQ(losses(folder, "split"), losses(folder, "typed"));
  const Result missing = run(colonnade(small(folder, "missing", numbers + file)));
  EXPECT_EQ(missing.code, 2);
  EXPECT_NE(missing.text.find("--data-args-path must name a file"), std::string::npos) << missing.text;
  const Result twice = run(colonnade(small(folder, "twice", splits + Words{"--mock-data"})));
  EXPECT_EQ(twice.code, 2);
  EXPECT_NE(twice.text.find("2 of them"), std::string::npos) << twice.text;
}

TEST(DataWays, OutOfVocabularyIdsAreFoundBeforeTraining) {
  const TempFolder folder;
  const std::string set = (folder / "d").string();
  std::string tokens = read_text(kVectors + "/indexed/gpt_uint16.bin");
  const std::uint16_t id = 2'000;
  for (std::size_t at = tokens.size() * 19 / 20 / 2 * 2; at < tokens.size(); at += sizeof id)
    std::memcpy(tokens.data() + at, &id, sizeof id);  // in the validation data only
  write(set + ".bin", tokens);
  write(set + ".idx", read_text(kVectors + "/indexed/gpt_uint16.idx"));
  const auto words = [&](const std::string& name, const Words& more) {
    return small(folder, name,
                 Words{"--tokenizer-type=NullTokenizer", "--eval-iters=1", "--split=9,1,0"} + more);
  };
  const auto expect_rejected = [&](const Result& result, const std::string& name) {
    EXPECT_EQ(result.code, 3) << result.text;
    EXPECT_THAT(result.text,
                AllOf(HasSubstr("d: token ids must be 0 to 1151; got 2000 in document "),
                      HasSubstr("another tokenizer, give that one or --vocab-size 2001 or more;"),
                      HasSubstr("--check-tokens --vocab-size 1152` counts them")));
    EXPECT_THAT(result.text, Not(HasSubstr(" step ")));
    EXPECT_FALSE(fs::exists(folder / name / "ledger.jsonl")) << "the session did not start";
  };
  const Words bad{"--vocab-size=1152", "--data-path", set};
  expect_rejected(run(colonnade(words("a", bad))), "a");
  expect_rejected(run(colonnade(Words{"launch", "--nproc-per-node", "2", "--"} +
                                words("b", bad + Words{"--tensor-model-parallel-size=2"}))),
                  "b");
  const Words blend{"--vocab-size=1152", "--data-path", "0.9", kVectors + "/indexed/gpt_uint16", "0.1", set};
  expect_rejected(run(colonnade(words("c", blend))), "c");
  const Result fits = run(colonnade(words("d", {"--vocab-size=2001", "--data-path", set})));
  EXPECT_EQ(fits.code, 0) << fits.text;
  // The last four ids of numbers are a BERT's own.
  Words bert = words("e", {"--vocab-size=1025", "--data-path", kVectors + "/indexed/bert_uint16"});
  bert[1] = "bert";
  const Result special = run(colonnade(bert));
  EXPECT_EQ(special.code, 3) << special.text;
  EXPECT_THAT(special.text,
              HasSubstr("bert_uint16: token ids of text must be 0 to 1020, below the special ids"));
}

TEST(DataWays, IndicesThatExceedTheMemoryAreRejected) {
  const TempFolder folder;
  const Words numbers{"--tokenizer-type=NullTokenizer", "--vocab-size=1152", "--split=1,0,0",
                      "--train-iters=1000000000000"};
  const std::string gpt = kVectors + "/indexed/gpt_uint16", sentences = kVectors + "/indexed/bert_uint16";
  Words bert = small(folder, "bert", numbers + Words{"--data-path", sentences});
  bert[1] = "bert";
  for (const Words& words :
       {bert, small(folder, "gpt", numbers + Words{"--data-path", gpt}),
        Words{"data", "inspect", sentences, "--family=bert", "--seq-length=32", "--samples=2000000000000",
              "--split=1,0,0", "--tokenizer-type=NullTokenizer", "--vocab-size=1152", "--data-cache-path",
              (folder / "cache").string()}}) {
    const Result result = run(colonnade(words));
    EXPECT_EQ(result.code, 2) << result.text;
    EXPECT_THAT(result.text,
                AllOf(HasSubstr(": the indices of its samples must fit the memory of this machine"),
                      HasSubstr("--samples of `data inspect`")));
  }
}

TEST(DataWays, AmbiguousPadMasksTextEndsOnRequest) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "tokenizer");
  std::filesystem::copy_file(kVectors + "/tokenizers/gpt2_bpe.json", folder / "tokenizer/tokenizer.json");
  write(
      folder / "tokenizer/tokenizer_config.json",
      R"({"eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "tokenizer_class": "GPT2Tokenizer"})");
  const Words data{"--tokenizer-type=HuggingFaceTokenizer",
                   "--tokenizer-model",
                   (folder / "tokenizer").string(),
                   "--split=1",
                   "--data-path",
                   kVectors + "/indexed/gpt_uint16"};
  ASSERT_EQ(run(colonnade(small(folder, "ends", data))).code, 0);
  const Result hidden = run(colonnade(small(folder, "hidden", data + Words{"--allow-ambiguous-pad-tokens"})));
  ASSERT_EQ(hidden.code, 0) << hidden.text;
  EXPECT_NE(hidden.text.find("is also its end of text, which now has no loss"), std::string::npos);
  EXPECT_NE(losses(folder, "hidden"), losses(folder, "ends"));
  const Result numbers =
      run(colonnade(small(folder, "numbers",
                          {"--tokenizer-type=NullTokenizer", "--vocab-size=1025", "--split=1", "--data-path",
                           kVectors + "/indexed/gpt_uint16"})));
  ASSERT_EQ(numbers.code, 0) << numbers.text;
  EXPECT_EQ(losses(folder, "ends"), losses(folder, "numbers"));  // where there is no pad
}

TEST(DataWays, EvaluationsWithoutDataAreReported) {
  const TempFolder folder;
  const std::string note = "--eval-iters 1: no validation runs";
  const Words numbers{"--tokenizer-type=NullTokenizer", "--vocab-size=1025", "--train-iters=1",
                      "--eval-iters=1", "--eval-interval=1"};
  const std::string data = kVectors + "/indexed/gpt_uint16";
  const Result none =
      run(colonnade(small(folder, "none", numbers + Words{"--split=1", "--data-path", data})));
  ASSERT_EQ(none.code, 0) << none.text;
  EXPECT_NE(none.text.find(note), std::string::npos) << none.text;
  const Result all = run(colonnade(small(
      folder, "all",
      numbers + Words{"--train-data-path", data, "--valid-data-path", data, "--test-data-path", data})));
  ASSERT_EQ(all.code, 0) << all.text;
  EXPECT_EQ(all.text.find(note), std::string::npos) << all.text;
  EXPECT_NE(all.text.find("test"), std::string::npos) << all.text;
}

using nlohmann::json;

const std::string kOne = kVectors + "/indexed/gpt_uint16", kTwo = kVectors + "/indexed/gpt2_uint16";
const Words kNumbers{"--tokenizer-type=NullTokenizer", "--vocab-size=1025"};

/// Expects the samples, epochs and repeats of each dataset to equal those of the last audit.
void expect_counts_of_audit(const TempFolder& folder, const json& inspection) {
  const json counted = read_json(folder / "a.json").at("data_sets");
  ASSERT_EQ(inspection.at("data_sets").size(), counted.size());
  for (std::size_t i = 0; i < counted.size(); ++i) {
    const json& set = inspection["data_sets"][i];
    EXPECT_EQ(set["prefix"], counted[i]["name"]);
    EXPECT_EQ(set["sequences_read"], counted[i]["read"]);
    for (const char* key : {"samples", "epochs", "read_again", "first_again"})
      EXPECT_EQ(set[key], counted[i][key]) << key;
  }
}

/// Runs 6 steps of 4 samples with settings that decide samples. Inspections with its config.yaml, and with
/// the same settings as flags, show the samples that the run has read, and the number that it requests.
void expect_inspection_of_a_run(const TempFolder& folder, const std::string& name, const Words& deciding) {
  const Words words = small(folder, name, deciding + Words{"--global-batch-size=4", "--save-interval=6"});
  const Words length =
      std::ranges::count(deciding, "--train-samples=24") > 0 ? Words{} : Words{"--train-iters=6"};
  Words trained = words + length;
  std::erase(trained, "--train-iters=2");
  const Result result = run(colonnade(trained));
  ASSERT_EQ(result.code, 0) << name << result.text;
  const json read = audited_samples(folder, name, 0, 24);
  const json by_file = inspected(folder, config_of(folder, name) + kAll + Words{"24"});
  EXPECT_EQ(named_samples(by_file), read) << name;
  expect_counts_of_audit(folder, by_file);
  EXPECT_EQ(by_file["asked"], 24) << name;
  EXPECT_EQ(by_file["split"], "train");
  EXPECT_EQ(named_samples(inspected(folder, config_of(folder, name) + kAll + Words{"3", "--from=17"})),
            audited_samples(folder, name, 17, 3))
      << name;
  const Words cache{"--data-cache-path", (folder / "cache").string()};
  const Words asked = length.empty() ? Words{} : length + Words{"--global-batch-size=4"};
  EXPECT_EQ(named_samples(
                inspected(folder, deciding + Words{"--seq-length=32"} + cache + asked + kAll + Words{"24"})),
            read)
      << name;
}

TEST(DataWays, InspectionReadsTheSettingsOfARun) {
  const TempFolder folder;
  write(folder / "words", "0.3 " + kOne + " 0.7 " + kTwo + "\n");
  write(folder / "splits.json", R"({"train": [0.6, ")" + kOne + R"(", 0.4, ")" + kTwo + R"("], "valid": ")" +
                                    kTwo + R"(", "test": null})");
  const std::vector<std::pair<std::string, Words>> ways{
      {"one", {"--data-path", kOne, "--split=9,1,0", "--seed=7"}},
      {"blend", {"--data-path", "0.3", kOne, "0.7", kTwo, "--split=3,1,1"}},
      {"whole", {"--data-path", kOne, kTwo}},
      {"per_split", {"--train-data-path", kTwo, "--valid-data-path", kOne}},
      {"args", {"--data-args-path", (folder / "words").string(), "--split=9,1,0"}},
      {"split_args", {"--per-split-data-args-path", (folder / "splits.json").string()}},
      {"cyclic", {"--data-path", kOne, "--dataloader-type=cyclic", "--split=1", "--seed=7"}},
      {"cyclic_blend", {"--data-path", "0.5", kOne, "0.5", kTwo, "--dataloader-type=cyclic"}},
      {"by_samples",
       {"--data-path", "0.5", kOne, "0.5", kTwo, "--train-samples=24", "--mid-level-dataset-surplus=0.1"}},
      {"mock", {"--mock-data", "--seed=3"}}};
  for (const auto& [name, words] : ways) expect_inspection_of_a_run(folder, name, words + kNumbers);
  EXPECT_NE(audited_samples(folder, "cyclic", 0, 24),
            named_samples(inspected(
                folder, config_of(folder, "cyclic") + kAll + Words{"24", "--dataloader-type=single"})))
      << "cyclic has its own order";
  // Other data before it, with the run's other settings.
  const json other = inspected(folder, Words{kTwo} + config_of(folder, "one") + kAll + Words{"24"});
  EXPECT_EQ(other["data_sets"].size(), 1U);
  EXPECT_EQ(other["data_sets"][0]["prefix"], kTwo);
  const json made_up = inspected(folder, config_of(folder, "mock") + kAll + Words{"1"});
  EXPECT_EQ(made_up["data_sets"][0]["prefix"], "mock data");
  const json first = made_up["samples"][0]["pieces"][0];
  const std::int64_t from = first["offset"].get<std::int64_t>() + 1;  // sequence indices start at 1
  EXPECT_EQ(first["tokens"][0], from % 1025);
}

TEST(DataWays, InspectionReadsTheSettingsOfOtherModels) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "tok");
  std::filesystem::copy_file(kVectors + "/tokenizers/qwen2_bpe.json", folder / "tok/tokenizer.json");
  std::filesystem::copy_file(kVectors + "/chat/templates/chatml.jinja", folder / "tok/chat_template.jinja");
  std::string chats;
  for (int i = 0; i < 5; ++i)
    chats += json{{"messages",
                   {{{"role", "user"}, {"content", std::to_string(i)}},
                    {{"role", "assistant"}, {"content", "It is " + std::to_string(i)}}}}}
                 .dump() +
             "\n";
  write(folder / "chats.jsonl", chats);
  const std::string sentences = kVectors + "/indexed/bert_uint16";
  struct Case {
    std::string family, key;
    Words words;
  };
  for (const auto& [family, key, words] :
       {Case{"bert",
             "hidden",
             {"--tokenizer-type=HuggingFaceTokenizer", "--tokenizer-model",
              kVectors + "/tokenizers/bert_wordpiece.json", "--mask-prob=0.2", "--data-path", sentences,
              "--split=9,1,0"}},
        Case{"t5",
             "gaps",
             {"--tokenizer-type=NullTokenizer", "--vocab-size=2100", "--vocab-extra-ids=100",
              "--short-seq-prob=0.3", "--decoder-seq-length=64", "--encoder-num-layers=1", "--data-path",
              kTwo, "--dataloader-type=cyclic"}},
        Case{"gpt", "written", fill_in_the_middle() + Words{"--data-path", kTwo, "--split=9,1,0"}},
        Case{"gpt",
             "pieces",
             {"--sft", "--tokenizer-type=HuggingFaceTokenizer", "--tokenizer-model",
              (folder / "tok").string(), "--data-path", (folder / "chats.jsonl").string(), "--split=1",
              "--reset-position-ids", "--reset-attention-mask"}}}) {
    const std::string name = family + key;
    Words trained = small(folder, name, words + Words{"--seq-length=96", "--max-position-embeddings=96"});
    trained[1] = family;
    const Result result = run(colonnade(trained));
    ASSERT_EQ(result.code, 0) << name << result.text;
    const json shown = named_samples(inspected(folder, config_of(folder, name) + kAll + Words{"4"}));
    EXPECT_EQ(shown, audited_samples(folder, name, 0, 4)) << name;
    ASSERT_EQ(shown.size(), 4U);
    EXPECT_TRUE(shown[3].contains(key)) << name;
  }
}

/// The validation of one run reads the same as the training of another that requests as many samples of the
/// same data: by Megatron's rule, (steps / interval + 1) * eval iterations * batch.
TEST(DataWays, InspectionShowsTheSamplesOfValidationAndTest) {
  const TempFolder folder;
  const Words settings{"--train-data-path", kOne, "--valid-data-path", kTwo,
                       "--test-data-path",  kOne, "--eval-iters=2",    "--eval-interval=3"};
  ASSERT_EQ(run(colonnade(small(folder, "run", settings + kNumbers + Words{"--train-iters=7"}))).code, 0);
  const auto trained_on = [&](const std::string& name, const std::string& prefix, int samples) {
    const Words words =
        small(folder, name,
              kNumbers + Words{"--train-data-path", prefix, "--train-iters", std::to_string(samples / 2)});
    EXPECT_EQ(run(colonnade(words)).code, 0);
    return audited_samples(folder, name, 0, samples);
  };
  const json valid = inspected(folder, config_of(folder, "run") + kAll + Words{"12", "--split-name=valid"});
  EXPECT_EQ(valid["asked"], (7 / 3 + 1) * 2 * 2);
  EXPECT_EQ(valid["data_sets"].size(), 1U);
  EXPECT_EQ(named_samples(valid), trained_on("as_valid", kTwo, 12));
  const json test = inspected(folder, config_of(folder, "run") + kAll + Words{"4", "--split-name=test"});
  EXPECT_EQ(test["asked"], 2 * 2);
  EXPECT_EQ(named_samples(test), trained_on("as_test", kOne, 4));
  const Words pass =
      config_of(folder, "run") + Words{"--split-name=valid", "--full-validation", "--seq-length=32"};
  const json whole = inspected(folder, pass);
  EXPECT_EQ(whole["asked"], (whole["data_sets"][0]["tokens"].get<std::int64_t>() - 1) / 32);
  const Result both = run(colonnade(Words{"data", "inspect"} + pass + Words{"--samples=4"}));
  EXPECT_EQ(both.code, 2);
  EXPECT_NE(both.text.find("must not be used with --full-validation"), std::string::npos) << both.text;
  const Words shares{kOne, "--seq-length=32", "--samples=4", "--data-cache-path",
                     (folder / "cache").string()};
  const json last = inspected(folder, shares + Words{"--split=1,1,1", "--split-name=test", "--show=4"});
  const auto sequences = last["data_sets"][0]["sequences"].get<std::int64_t>();
  for (const json& sample : last["samples"])
    EXPECT_GE(sample["pieces"][0]["sequence"], sequences * 2 / 3 - 1) << "the last third";
  const Result none =
      run(colonnade(Words{"data", "inspect"} + shares + Words{"--split=1", "--split-name=valid"}));
  EXPECT_EQ(none.code, 3);
  EXPECT_NE(none.text.find("the valid split must hold samples; got none"), std::string::npos) << none.text;
}

/// The last line of a run's ledger.
json session_of(const TempFolder& folder, const std::string& name) {
  json last;
  std::istringstream lines(read_text(folder / name / "ledger.jsonl"));
  for (std::string line; std::getline(lines, line);) last = json::parse(line);
  return last;
}

/// Runs that differ only in --test-data-path: only the test loss differs, and its samples are those that the
/// ledger and an inspection give.
TEST(DataWays, TestReadsItsOwnData) {
  const TempFolder folder;
  for (const char* end : {".bin", ".idx"})
    std::filesystem::copy_file(kOne + end, (folder / "held_out").string() + end);
  const std::string held_out = (folder / "held_out").string();
  const Words shared = kNumbers + Words{"--train-data-path", kOne,
                                        "--valid-data-path", kOne,
                                        "--eval-iters=2",    "--eval-interval=2",
                                        "--test-data-path"};
  const auto tested = [&](const std::string& name, const std::string& prefix) {
    const Result result = run(colonnade(small(folder, name, shared + Words{prefix})));
    EXPECT_EQ(result.code, 0) << result.text;
    std::map<std::string, double> losses;
    for (const json& line : validations(folder / name)) losses[line.at("set")] = line.at("loss");
    EXPECT_EQ(losses.size(), 2U);
    return losses;
  };
  const auto expect_agreement = [&](const std::string& name, const std::string& prefix, double loss) {
    const json session = session_of(folder, name);
    const json set = session.at("data").at("test").at("sets").at(0);
    const json inspection =
        inspected(folder, config_of(folder, name) + kAll + Words{"4", "--split-name=test"});
    const json& shown = inspection.at("data_sets").at(0);
    EXPECT_EQ(set.at("name"), prefix);
    EXPECT_EQ(shown.at("prefix"), prefix);
    EXPECT_EQ(inspection.at("asked"), set.at("asked"));
    EXPECT_EQ(shown.at("tokens"), set.at("tokens"));
    EXPECT_EQ(inspection.at("samples").size(), 4U);
    EXPECT_NE(session.at("files").dump().find(prefix + ".bin"), std::string::npos) << session;
    const double scored =
        evaluated(colonnade({"evaluate", "--load", (folder / name).string(), "--split-name=test",
                             "--eval-iters=2", "--global-batch-size=2"}))
            .loss;
    EXPECT_NEAR(scored, loss, 3e-6) << name;
  };
  auto one = tested("one", held_out), two = tested("two", kTwo);
  expect_agreement("one", held_out, one["test"]);
  expect_agreement("two", kTwo, two["test"]);
  EXPECT_EQ(losses(folder, "one"), losses(folder, "two"));
  EXPECT_EQ(one["validation"], two["validation"]);
  EXPECT_GT(std::abs(one["test"] - two["test"]), 1e-4);
  for (const char* end : {".bin", ".idx"})
    std::filesystem::copy_file(kTwo + end, held_out + end, std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(tested("other_file", held_out)["test"], two["test"]) << "the current file under the path is read";
}

/// A recipe has fewer settings than config.yaml: the others come from the checkpoint it starts from, and
/// missing ones are reported.
TEST(DataWays, InspectionOfARecipeMatchesTheRunItWouldStart) {
  const TempFolder folder;
  const Words bert{"--tokenizer-type=NullTokenizer",  "--vocab-size=2100", "--data-path",
                   kVectors + "/indexed/bert_uint16", "--seq-length=96",   "--max-position-embeddings=96"};
  Words words = small(folder, "bert", bert);
  words[1] = "bert";
  ASSERT_EQ(run(colonnade(words)).code, 0);
  const std::string recipe = (folder / "recipe.yaml").string();
  const std::string begins = "pretrained_checkpoint: " + (folder / "bert").string() + "\n";
  const std::string rest =
      "data_path: " + kVectors +
      "/indexed/bert_uint16\nseq_length: 96\ntrain_iters: 2\nlr: 1e-3\nmicro_batch_size: 2\n"
      "tokenizer_type: NullTokenizer\ntensor_model_parallel_size: 2\n" +
      "data_cache_path: " + (folder / "cache").string() + "\n";
  write(recipe, begins + rest + "global_batch_size: 2\n");
  EXPECT_EQ(named_samples(inspected(folder, {"--config", recipe, "--show=4", "--show-tokens=64"})),
            audited_samples(folder, "bert", 0, 4));
  // The samples of a complete run are known without a checkpoint.
  const Words goes_on{"pretrain",
                      "--config",
                      (folder / "bert/config.yaml").string(),
                      "--load",
                      (folder / "bert").string(),
                      "--train-iters=3",
                      "--override-opt-param-scheduler"};
  const Result went_on = run(colonnade(goes_on));
  ASSERT_EQ(went_on.code, 0) << went_on.text;
  std::filesystem::remove_all(folder / "bert/checkpoints");
  EXPECT_EQ(inspected(folder, config_of(folder, "bert"))["asked"], 6);

  write(recipe, rest + "model: bert\nvocab_size: 2100\n");
  const Result unsaid = run(colonnade({"data", "inspect", "--config", recipe}));
  EXPECT_EQ(unsaid.code, 2);
  EXPECT_NE(unsaid.text.find("--global-batch-size must be given"), std::string::npos) << unsaid.text;
  EXPECT_EQ(inspected(folder, {"--config", recipe, "--samples=5"})["asked"], 5);
}

}  // namespace
}  // namespace colonnade::e2e
