// Runs find their data by files of paths, keep what these said, and know a pad that is no pad.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "program.h"

namespace colonnade::e2e {
namespace {

const std::string kVectors = COLONNADE_VECTORS;

Words small(const TempFolder& folder, const std::string& name, const Words& more) {
  return Words{"pretrain",
               "gpt",
               "--num-layers=1",
               "--hidden-size=32",
               "--num-attention-heads=2",
               "--seq-length=32",
               "--max-position-embeddings=32",
               "--micro-batch-size=2",
               "--global-batch-size=2",
               "--lr=1e-3",
               "--train-iters=2",
               "--eval-iters=0",
               "--data-cache-path",
               (folder / "cache").string(),
               "--save-interval=2",
               "--save",
               (folder / name).string()} +
         more;
}

std::string losses(const TempFolder& folder, const std::string& name) {
  std::string all;
  std::istringstream lines(read_text(folder / name / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    all += nlohmann::json::parse(line).at("lm_loss").dump() + "\n";
  return all;
}

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
  // Its own settings name the data: the file is not needed again.
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
  EXPECT_NE(missing.text.find("--data-args-path: must name a file"), std::string::npos) << missing.text;
  const Result twice = run(colonnade(small(folder, "twice", splits + Words{"--mock-data"})));
  EXPECT_EQ(twice.code, 2);
  EXPECT_NE(twice.text.find("2 of them"), std::string::npos) << twice.text;
}

TEST(DataWays, APadThatEndsTextsHidesThemWhenAskedTo) {
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
  EXPECT_NE(hidden.text.find("is its end of text too, which has no loss now"), std::string::npos);
  EXPECT_NE(losses(folder, "hidden"), losses(folder, "ends"));
  const Result numbers =
      run(colonnade(small(folder, "numbers",
                          {"--tokenizer-type=NullTokenizer", "--vocab-size=1025", "--split=1", "--data-path",
                           kVectors + "/indexed/gpt_uint16"})));
  ASSERT_EQ(numbers.code, 0) << numbers.text;
  EXPECT_EQ(losses(folder, "ends"), losses(folder, "numbers"));  // where there is no pad
}

TEST(DataWays, FillInTheMiddleIsTheSameAfterAResume) {
  const TempFolder folder;
  const Words fim =
      fill_in_the_middle() + Words{"--split=1", "--data-path", kVectors + "/indexed/gpt_uint16"};
  ASSERT_EQ(run(colonnade(small(folder, "whole", fim + Words{"--train-iters=4"}))).code, 0);
  ASSERT_EQ(run(colonnade(small(folder, "broken", fim + Words{"--train-iters=4", "--exit-interval=2"}))).code,
            0);
  const Result resumed = run(colonnade(
      small(folder, "broken", fim + Words{"--train-iters=4", "--load", (folder / "broken").string()})));
  ASSERT_EQ(resumed.code, 0) << resumed.text;
  EXPECT_EQ(losses(folder, "broken"), losses(folder, "whole"));
  const Result audited = run(colonnade({"data", "audit", (folder / "broken").string(), "--samples", "0..7",
                                        "--json", (folder / "a.json").string()}));
  ASSERT_EQ(audited.code, 0) << audited.text;
  const auto audit = nlohmann::json::parse(read_text(folder / "a.json"));
  EXPECT_EQ(audit["data_sets"][0]["tokens"], 8 * 32);
  for (const auto& sample : audit["shown"]) {
    std::int64_t tokens = 0;
    for (const auto& piece : sample["pieces"]) tokens += piece["length"].get<std::int64_t>();
    EXPECT_EQ(tokens, 33) << sample;
  }
  const Words scored{"--split=3,1,0", "--train-iters=2", "--eval-iters=1", "--eval-interval=2"};
  ASSERT_EQ(run(colonnade(small(folder, "scored", fim + scored))).code, 0);
  const auto score = [&](const Words& words) {
    return evaluated(colonnade(Words{"evaluate", "--load", (folder / "scored").string(), "--eval-iters=1",
                                     "--global-batch-size=2"} +
                               words))
        .loss;
  };
  EXPECT_NEAR(score({}), validations(folder / "scored").at(0).at("loss"), 3e-6);
  EXPECT_GT(std::abs(score({"--no-fim-data"}) - score({})), 1e-4) << "texts as they are";
  EXPECT_FALSE(std::filesystem::exists(kVectors + "/indexed/gpt_uint16"))
      << "indices belong to --data-cache-path";
  const Result unknown = run(colonnade(small(folder, "unknown", fim + Words{"--fim-pad-token=<fim_pad>"})));
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.text.find("without --fim-pad-token '<fim_pad>'"), std::string::npos) << unknown.text;
  const Result mock = run(colonnade(small(folder, "mock", {"--mock-data", "--vocab-size=64", "--fim-data"})));
  EXPECT_EQ(mock.code, 2);
  EXPECT_NE(mock.text.find("--fim-data"), std::string::npos) << mock.text;
}

}  // namespace
}  // namespace colonnade::e2e
