// Fill-in-the-middle: permuted texts by the flags, after a resume, and in evaluations.
#include <gtest/gtest.h>

#include <filesystem>

#include "data_runs.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

using nlohmann::json;

const std::string kVectors = test::vectors();

TEST(FillInTheMiddle, IsTheSameAfterAResume) {
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
  EXPECT_GT(std::abs(score({"--no-fim-data"}) - score({})), 1e-4) << "texts are not permuted";
  EXPECT_FALSE(std::filesystem::exists(kVectors + "/indexed/gpt_uint16"))
      << "indices belong to --data-cache-path";
  const Result unknown = run(colonnade(small(folder, "unknown", fim + Words{"--fim-pad-token=<fim_pad>"})));
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.text.find("without --fim-pad-token '<fim_pad>'"), std::string::npos) << unknown.text;
  const Result mock = run(colonnade(small(folder, "mock", {"--mock-data", "--vocab-size=64", "--fim-data"})));
  EXPECT_EQ(mock.code, 2);
  EXPECT_NE(mock.text.find("--fim-data"), std::string::npos) << mock.text;
}

/// Documents of three or four files separated by ';'; every third file starts with "Keep".
std::string repositories() {
  std::string lines;
  for (int i = 0; i < 60; ++i) {
    std::string text = i % 3 == 0 ? "Keep this one" : "Cut that other one";
    for (int file = 0; file < 2 + i % 2; ++file)
      text += ";a file of number " + std::to_string(i) + " with words in it";
    lines += json{{"text", text}}.dump() + "\n";
  }
  return lines;
}

/// Number of parts of each kind in samples; with `keep`, expects parts of unpermuted texts to start with
/// "Keep".
std::map<std::string, int> parts_of(const json& samples, bool keep) {
  std::map<std::string, int> parts;
  for (const json& sample : samples) {
    bool first = true;  // may be the end of a text that starts in another sample
    for (const json& part : sample.at("written")) {
      ++parts[part.at("part")];
      if (keep && !first && part.at("part") == "text") {
        EXPECT_EQ(part.at("text").get<std::string>().find("Keep"), 0U) << part;
      }
      first = false;
    }
  }
  return parts;
}

TEST(FillInTheMiddle, PermutesFilesAndLeavesOutPrefixes) {
  const TempFolder folder;
  write_text(folder / "texts.jsonl", repositories());
  const Words tokenizer{"--tokenizer-type=HuggingFaceTokenizer", "--tokenizer-model",
                        kVectors + "/tokenizers/gpt2_bpe.json"};
  const Result made = run(colonnade(Words{"preprocess", "--input", (folder / "texts.jsonl").string(),
                                          "--append-eod", "--output-prefix", (folder / "texts").string()} +
                                    tokenizer));
  ASSERT_EQ(made.code, 0) << made.text;
  const Words data = fill_in_the_middle() + Words{"--fim-rate=1", "--split=1", "--data-path",
                                                  (folder / "texts_text_document").string()};
  const Words files{"--fim-split-sample=;"}, length{"--seq-length=256", "--max-position-embeddings=256"};
  // The samples that a run has read, equal to those of an inspection with its settings.
  const auto read = [&](const std::string& name, const Words& more) {
    const Result result = run(colonnade(small(folder, name, data + more + length)));
    EXPECT_EQ(result.code, 0) << result.text;
    json samples = audited_samples(folder, name, 0, 4);
    EXPECT_EQ(named_samples(inspected(folder, config_of(folder, name) + kAll + Words{"4"})), samples) << name;
    return samples;
  };
  const auto whole = parts_of(read("whole", {}), false);
  EXPECT_EQ(whole.count("text"), 0U);
  auto parts = parts_of(read("files", files), false);
  EXPECT_EQ(parts.count("text"), 0U) << "when unset, the rate per file is that per text";
  EXPECT_GT(parts["middle"], 2 * whole.at("middle")) << "each file is permuted separately";
  parts = parts_of(read("no_file", files + Words{"--fim-fragment-rate=0"}), false);
  EXPECT_LE(parts["middle"], 2 * 4) << "a text of one file is permuted only at sample boundaries";
  EXPECT_GT(parts["text"], whole.at("middle"));
  parts = parts_of(read("some_files", files + Words{"--fim-fragment-rate=0.5"}), false);
  EXPECT_GT(parts["text"], 5);
  EXPECT_GT(parts["middle"], 5);
  parts = parts_of(read("kept", {"--fim-no-prefix=Keep"}), true);
  EXPECT_GT(parts["text"], 5);
  EXPECT_GT(parts["middle"], parts["text"]);
  const Result changed = run(colonnade(small(
      folder, "kept", data + length + Words{"--fim-no-prefix=Cut", "--load", (folder / "kept").string()})));
  EXPECT_EQ(changed.code, 2);
  EXPECT_NE(changed.text.find(
                "--fim-no-prefix must keep its value when a run resumes, because it decides which texts are "
                "permuted for fill-in-the-middle; got Cut"),
            std::string::npos)
      << changed.text;
}

}  // namespace
}  // namespace colonnade::e2e
