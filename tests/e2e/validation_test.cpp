// The recorded evaluation losses are those of the validation and test splits, with separate
// documents: new samples each time, or all of them with --full-validation, and separately for several sets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "program.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

/// Losses of the first samples of a split, by `colonnade evaluate` with the weights of a step.
Evaluated score(const TempFolder& folder, int step, const std::string& split, int batches,
                const Words& more = {}) {
  return evaluated(
      colonnade(Words{"evaluate", "--load", (folder / "run").string(), "--ckpt-step", std::to_string(step),
                      "--split-name", split, "--global-batch-size=4", "--eval-iters", std::to_string(batches),
                      "--data-cache-path", (folder / "cache").string()} +
                more));
}

TEST(Validation, ReadsTheNextSamplesOfItsSplitEachTime) {
  const TempFolder folder;
  const std::string run_folder = (folder / "run").string();
  const Result trained = run(launch(2, folder.path(),
                                    {"pretrain",
                                     "gpt",
                                     "--num-layers=2",
                                     "--hidden-size=64",
                                     "--num-attention-heads=4",
                                     "--seq-length=32",
                                     "--max-position-embeddings=32",
                                     "--micro-batch-size=1",
                                     "--global-batch-size=4",
                                     "--lr=1e-3",
                                     "--train-iters=4",
                                     "--data-path",
                                     test::vectors() + "/indexed/gpt_uint16",
                                     "--split=2,1,1",
                                     "--data-cache-path",
                                     (folder / "cache").string(),
                                     "--tokenizer-type=NullTokenizer",
                                     "--vocab-size=1025",  // the last id is the data's end of document
                                     "--reset-position-ids",
                                     "--reset-attention-mask",
                                     "--eod-mask-loss",
                                     "--eval-interval=2",
                                     "--eval-iters=2",
                                     "--save-interval=2",
                                     "--save",
                                     run_folder}));
  ASSERT_EQ(trained.code, 0) << trained.text;
  const std::vector<nlohmann::json> records = validations(folder / "run");
  ASSERT_EQ(records.size(), 3U);
  constexpr double kRounding = 2e-6;  // rounding of the printed loss and of the mean below
  EXPECT_EQ(records[0].at("set"), "validation");
  EXPECT_NEAR(records[0].at("loss"), score(folder, 2, "valid", 2).loss, kRounding);
  EXPECT_EQ(records[1].at("iteration"), 4);
  const auto [all, all_tokens, none] = score(folder, 4, "valid", 4);
  const auto [first, first_tokens, neither] = score(folder, 4, "valid", 2);
  EXPECT_EQ(none + neither, 0) << "no sentence-order loss";
  EXPECT_LT(first_tokens, 2 * 4 * 32) << "the ends of documents have no loss";
  EXPECT_NEAR(records[1].at("loss"), (all * all_tokens - first * first_tokens) / (all_tokens - first_tokens),
              3 * kRounding)
      << "the third and fourth batch";
  EXPECT_EQ(records[2].at("set"), "test");
  EXPECT_NEAR(records[2].at("loss"), score(folder, 4, "test", 2).loss, kRounding);
  // `evaluate` reads the document settings from the checkpoint.
  for (const char* other : {"--no-reset-position-ids", "--no-reset-attention-mask", "--no-eod-mask-loss"})
    EXPECT_GT(std::abs(score(folder, 4, "valid", 2, {other}).loss - first), 3 * kRounding) << other;
}

const std::string kFirst = test::vectors() + "/indexed/gpt_uint16",
                  kSecond = test::vectors() + "/indexed/gpt2_uint16";

/// Four steps of 8 samples, with a full validation and a checkpoint every second step. With 128 tokens each,
/// the first dataset has 441 samples and the second one 356.
Words in_full(const TempFolder& folder, const std::string& name, const Words& valid, const Words& more = {}) {
  return Words{"pretrain",
               "gpt",
               "--num-layers=2",
               "--hidden-size=32",
               "--num-attention-heads=2",
               "--seq-length=128",
               "--max-position-embeddings=128",
               "--micro-batch-size=2",
               "--global-batch-size=8",
               "--lr=1e-2",
               "--train-iters=4",
               "--train-data-path",
               kFirst,
               "--data-cache-path",
               (folder / "cache").string(),
               "--tokenizer-type=NullTokenizer",
               "--vocab-size=1025",
               "--reset-position-ids",
               "--reset-attention-mask",
               "--eod-mask-loss",
               "--calculate-per-token-loss",
               "--eval-interval=2",
               "--full-validation",
               "--save-interval=2",
               "--save",
               (folder / name).string(),
               "--load",
               (folder / name).string(),
               "--valid-data-path"} +
         valid + more;
}

using Losses = std::vector<std::pair<std::string, double>>;
/// Names and losses of the evaluations of a run, in order.
Losses losses_of(const std::filesystem::path& run_folder) {
  Losses losses;
  for (const nlohmann::json& record : validations(run_folder))
    losses.emplace_back(record.at("set").get<std::string>(), record.at("loss").get<double>());
  return losses;
}

void expect_equal(const Losses& got, const Losses& expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].first, expected[i].first);
    EXPECT_NEAR(got[i].second, expected[i].second, tolerance) << got[i].first << ", " << i;
  }
}

TEST(Validation, FullReadsAllSamplesOfItsDataInEveryLayout) {
  const TempFolder folder;
  const Result one = run(colonnade(in_full(folder, "run", {kSecond})));
  ASSERT_EQ(one.code, 0) << one.text;
  EXPECT_NE(one.text.find("validation: reads 356 samples each time, the last 4 in a padded batch"),
            std::string::npos)
      << one.text;
  const Losses losses = losses_of(folder / "run");
  ASSERT_EQ(losses.size(), 2U);
  for (const int step : {2, 4}) {
    const auto scored = [&](int samples) {
      return score(folder, step, "valid", samples, {"--global-batch-size=1"}).loss;
    };
    const auto& [set, loss] = losses.at(static_cast<std::size_t>(step / 2 - 1));
    EXPECT_EQ(set, "validation");
    EXPECT_NEAR(loss, scored(356), 5e-6) << "step " << step;
    EXPECT_GT(std::abs(loss - scored(352)), 1e-5) << "the partial batch makes a difference";
  }
  const std::vector<std::tuple<std::string, int, Words>> layouts{
      {"data", 2, {}},
      {"pipeline", 2, {"--pipeline-model-parallel-size=2"}},
      {"both", 4, {"--pipeline-model-parallel-size=2", "--micro-batch-size=1"}}};
  for (const auto& [name, ranks, more] : layouts) {
    SCOPED_TRACE(name);
    const Result result = run(launch(ranks, folder.path(), in_full(folder, name, {kSecond}, more)));
    ASSERT_EQ(result.code, 0) << result.text;
    expect_equal(losses_of(folder / name), losses, 2e-5);
  }
}

TEST(Validation, FullIsTheSameInAResumedRun) {
  const TempFolder folder;
  const Words valid{kFirst, kSecond}, sets{"--multiple-validation-sets"};
  const Result whole = run(colonnade(in_full(folder, "whole", valid, sets)));
  ASSERT_EQ(whole.code, 0) << whole.text;
  for (const Words& more : {Words{"--exit-interval=2"}, Words{}}) {
    const Result part = run(colonnade(in_full(folder, "parts", valid, sets + more)));
    ASSERT_EQ(part.code, 0) << part.text;
  }
  EXPECT_EQ(losses_of(folder / "parts"), losses_of(folder / "whole"));
  const Result other = run(launch(
      2, folder.path(),
      in_full(folder, "other", valid, sets + Words{"--load", (folder / "whole").string(), "--ckpt-step=2"})));
  ASSERT_EQ(other.code, 0) << other.text;
  const Losses losses = losses_of(folder / "whole");
  expect_equal(losses_of(folder / "other"), {losses.begin() + 2, losses.end()}, 2e-5);
}

TEST(Validation, SeveralSetsHaveSeparateLosses) {
  const TempFolder folder;
  const Words names{"--multiple-validation-sets", "--validation-set-names", "books", "code"};
  const Result both = run(launch(2, folder.path(), in_full(folder, "run", {kFirst, kSecond}, names)));
  ASSERT_EQ(both.code, 0) << both.text;
  const Losses losses = losses_of(folder / "run");
  ASSERT_EQ(losses.size(), 4U);
  EXPECT_NE(both.text.find("validation-code at step 4"), std::string::npos) << both.text;
  EXPECT_NE(read_text(folder / "run/report.html").find("validation-books loss"), std::string::npos);
  for (const std::size_t set : {0, 1}) {
    const std::string name = set == 0 ? "validation-books" : "validation-code";
    EXPECT_EQ(losses[set].first, name);
    const Words last{"--load", (folder / "run").string(), "--ckpt-step=4", "--skip-train"};
    const Result alone =
        run(launch(2, folder.path(), in_full(folder, name, {set == 0 ? kFirst : kSecond}, last)));
    ASSERT_EQ(alone.code, 0) << alone.text;
    expect_equal(losses_of(folder / name), {{"validation", losses[2 + set].second}}, 1e-12);
  }
  // Sets from a file, named by their indices, without weights.
  write_text(folder / "paths.json",
             nlohmann::json{{"train", {kFirst}}, {"valid", {kFirst, kSecond}}, {"test", nullptr}}.dump());
  Words file = in_full(folder, "file", {},
                       {"--multiple-validation-sets", "--train-iters=2", "--per-split-data-args-path",
                        (folder / "paths.json").string()});
  std::erase(file, "--valid-data-path");
  const auto train = std::ranges::find(file, "--train-data-path");
  file.erase(train, train + 2);
  const Result by_number = run(colonnade(file));
  ASSERT_EQ(by_number.code, 0) << by_number.text;
  const Losses numbered = losses_of(folder / "file");
  ASSERT_EQ(numbered.size(), 2U);
  EXPECT_EQ(numbered[0].first, "validation-0");
  EXPECT_EQ(numbered[1].first, "validation-1");
}

TEST(Validation, FullReadsASetSmallerThanABatch) {
  const TempFolder folder;
  const Result one = run(colonnade(in_full(folder, "one", {kSecond})));
  ASSERT_EQ(one.code, 0) << one.text;
  const Words last{"--load", (folder / "one").string(), "--ckpt-step=4", "--skip-train",
                   "--eval-global-batch-size=400"};
  const Result little = run(launch(2, folder.path(), in_full(folder, "little", {kSecond}, last)));
  ASSERT_EQ(little.code, 0) << little.text;
  expect_equal(losses_of(folder / "little"), {losses_of(folder / "one").back()}, 2e-5);
}

}  // namespace
}  // namespace colonnade::e2e
