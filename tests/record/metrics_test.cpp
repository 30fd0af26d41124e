// metrics.jsonl: keys and order, round trips, truncation at a resume, torn and damaged lines.
#include "colonnade/record/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"

namespace colonnade::record {
namespace {

namespace fs = std::filesystem;

StepRecord step(std::int64_t iteration) {
  return {.iteration = iteration,
          .consumed_samples = iteration * 8,
          .consumed_tokens = iteration * 512,
          .lm_loss = 7.06091881 / static_cast<double>(iteration),
          .grad_norm = 0.1,
          .learning_rate = 3e-4,
          .step_ms = 12.5,
          .tokens_per_second = 40960,
          .tflops_per_device = 0.25,
          .peak_memory_bytes = 123456789012,
          .peak_memory_rank = 3,
          .extra_losses = {{"load_balancing_loss", 1.01}},
          .layer_metrics = {{"expert_balance", {1.25, 2}}}};
}

class Metrics : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / "colonnade_metrics_test";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    path_ = folder_ / "metrics.jsonl";
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }
  [[nodiscard]] std::vector<std::int64_t> iterations() const {
    std::vector<std::int64_t> found;
    for (const auto& r : read_steps(path_)) found.push_back(r.iteration);
    return found;
  }

  fs::path folder_, path_;
};

TEST_F(Metrics, HasTheDocumentedKeysInOrder) {
  const auto line = nlohmann::ordered_json::parse(to_json_line(step(2)));
  std::vector<std::string> keys;
  for (const auto& [key, value] : line.items()) keys.push_back(key);
  EXPECT_THAT(keys,
              testing::ElementsAre("iteration", "consumed_samples", "consumed_tokens", "lm_loss", "grad_norm",
                                   "learning_rate", "loss_scale", "num_zeros", "skipped", "step_ms",
                                   "tokens_per_second", "tflops_per_device", "mfu", "peak_memory_bytes",
                                   "peak_memory_rank", "load_balancing_loss", "expert_balance"));
  EXPECT_TRUE(line["mfu"].is_null());
  EXPECT_TRUE(line["num_zeros"].is_null());
}

TEST_F(Metrics, RoundTripsBitwise) {
  StepRecord full = step(3);
  full.global_batch_size = 768;
  full.lm_loss = 0.1 + 0.2;
  full.num_zeros = 17;
  full.mfu = 0.43;
  full.skipped = true;
  full.layer_counts = {{"tokens_per_expert", {{3, 5, 0}, {1, 1, 6}}}};
  full.rank_values = {{"ranks.data_ms", {0.25, 1.5}}, {"ranks.memory_bytes", {123456789012}}};
  full.layer_losses = {{"z_loss", {{1, 0.1 + 0.2}, {10, 3}}}};
  const auto line = nlohmann::json::parse(to_json_line(full));
  EXPECT_EQ(line.at("z_loss_by_layer"), (nlohmann::json{{"1", 0.1 + 0.2}, {"10", 3.0}}));
  {
    MetricsFile file(path_, 0);
    file.append(step(2));
    file.append(full);
  }
  EXPECT_THAT(read_steps(path_), testing::ElementsAre(step(2), full));
}

TEST_F(Metrics, WritesNonFiniteNumbersAsNull) {
  StepRecord r = step(1);
  r.lm_loss = std::numeric_limits<double>::quiet_NaN();
  r.grad_norm = std::numeric_limits<double>::infinity();
  MetricsFile(path_, 0).append(r);
  const auto read = read_steps(path_);
  EXPECT_TRUE(std::isnan(read.at(0).lm_loss));
  EXPECT_TRUE(std::isnan(read.at(0).grad_norm));
}

TEST_F(Metrics, EachLineIsWrittenAtOnce) {
  MetricsFile file(path_, 0);
  file.append(step(1));
  EXPECT_THAT(iterations(), testing::ElementsAre(1));
  file.append(step(2));
  EXPECT_THAT(iterations(), testing::ElementsAre(1, 2));
}

TEST_F(Metrics, ResumedRunRemovesLaterSteps) {
  {
    MetricsFile file(path_, 0);
    for (int i = 1; i <= 5; ++i) file.append(step(i));
  }
  {
    MetricsFile file(path_, 3);
    EXPECT_THAT(iterations(), testing::ElementsAre(1, 2, 3));
    file.append(step(4));
  }
  EXPECT_THAT(iterations(), testing::ElementsAre(1, 2, 3, 4));
}

TEST_F(Metrics, NewRunKeepsTheRecordsOfEarlierOnes) {
  for (int run = 1; run <= 3; ++run) MetricsFile(path_, 0).append(step(run));
  EXPECT_THAT(iterations(), testing::ElementsAre(3));
  EXPECT_THAT(read_steps(path_.string() + ".1"), testing::ElementsAre(step(1)));
  EXPECT_THAT(read_steps(path_.string() + ".2"), testing::ElementsAre(step(2)));
  EXPECT_FALSE(fs::exists(path_.string() + ".3"));
}

TEST_F(Metrics, TornLastLineIsDropped) {
  write(to_json_line(step(1)) + "\n" + to_json_line(step(2)).substr(0, 40));
  EXPECT_THAT(iterations(), testing::ElementsAre(1));
  { MetricsFile(path_, 9).append(step(2)); }
  EXPECT_THAT(iterations(), testing::ElementsAre(1, 2));
}

TEST_F(Metrics, CompleteLastLineWithoutNewlineIsKept) {
  write(to_json_line(step(1)));
  { MetricsFile(path_, 9).append(step(2)); }
  EXPECT_THAT(iterations(), testing::ElementsAre(1, 2));
}

TEST_F(Metrics, DamageInTheMiddleIsReported) {
  write(to_json_line(step(1)) + "\nrubbish\n" + to_json_line(step(3)) + "\n");
  try {
    (void)read_steps(path_);
    FAIL() << "the damage was not detected";
  } catch (const DataError& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr(":2: each line must be a record"));
  }
  EXPECT_THROW(MetricsFile(path_, 3), DataError);
}

TEST_F(Metrics, MissingFileIsEmpty) { EXPECT_TRUE(read_steps(path_).empty()); }

TEST_F(Metrics, EvaluationsRoundTrip) {
  const EvalRecord first{.iteration = 10, .consumed_samples = 80, .loss = 2.5, .seconds = 1.5};
  const EvalRecord second{
      .iteration = 20, .consumed_samples = 160, .set = "test", .loss = 2.25, .seconds = 1, .sop_loss = 0.625};
  {
    MetricsFile file(path_, 0);
    file.append(first);
    file.append(second);
  }
  EXPECT_THAT(read_evals(path_), testing::ElementsAre(first, second));
  EXPECT_EQ(to_json_line(first).find("sop_loss"), std::string::npos);
  EXPECT_DOUBLE_EQ(first.perplexity(), std::exp(2.5));
  EXPECT_DOUBLE_EQ((EvalRecord{.loss = 1000}.perplexity()), std::exp(20.0));
}

}  // namespace
}  // namespace colonnade::record
