// Event files: checksums against published values, frames, and reading by the real TensorBoard.
#include "colonnade/record/tensorboard.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "colonnade/base/files.h"
#include "support/vectors.h"

namespace colonnade::record {
namespace {

namespace fs = std::filesystem;

const fs::path kPython = fs::path(test::sources()) / ".venv/bin/python";  // from `tools/setup.sh test`

// Prints {"scalars": {tag: [[step, value], ...]}, "text": {tag: value}} as TensorBoard reads the folder.
constexpr const char* kReader = R"(
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
a = EventAccumulator(sys.argv[1], size_guidance={'scalars': 0, 'tensors': 0})
a.Reload()
scalars = {t: [[e.step, e.value] for e in a.Scalars(t)] for t in a.Tags()['scalars']}
text = {t: a.Tensors(t)[0].tensor_proto.string_val[0].decode() for t in a.Tags()['tensors']}
print(json.dumps({'scalars': scalars, 'text': text}))
)";

class EventFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / "colonnade_event_test";
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] nlohmann::json read_by_tensorboard() const {
    fs::create_directories(folder_);
    const fs::path script = folder_ / "reader.py";
    std::ofstream(script) << kReader;
    const std::string command =
        fmt::format("{} {} {} 2>&1", kPython.string(), script.string(), folder_.string());
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
    std::string text(1 << 20, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), pipe.get()));
    const std::size_t result = text.find("{\"scalars\"");
    EXPECT_NE(result, std::string::npos) << "TensorBoard must read the folder; run `tools/setup.sh test`\n"
                                         << text;
    return result == std::string::npos ? nlohmann::json::object()
                                       : nlohmann::json::parse(text.substr(result));
  }

  fs::path folder_;
};

// RFC 3720, appendix B.4.
TEST(Crc32c, MatchesPublishedValues) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
}

TEST_F(EventFiles, HaveNamesThatTensorBoardFinds) {
  const EventFile file(folder_, {});
  EXPECT_THAT(file.path().filename().string(), testing::StartsWith("events.out.tfevents."));
  EXPECT_GT(read_file(file.path()).size(), 24u) << "the version is written before the first event";
}

TEST_F(EventFiles, HaveMegatronsTags) {
  const config::Logging settings{.log_timers_to_tensorboard = true,
                                 .log_memory_to_tensorboard = true,
                                 .log_validation_ppl_to_tensorboard = true};
  const StepRecord record{
      .iteration = 7,
      .consumed_samples = 56,
      .lm_loss = 2.5,
      .grad_norm = 0.5,
      .learning_rate = 0.25,
      .loss_scale = 4,
      .num_zeros = 3,
      .step_ms = 500,
      .tflops_per_device = 12,
      .peak_memory_bytes = 1024,
      .extra_losses = {{"load_balancing_loss", 1.5}, {"params_norm", 7.5}, {"sop_loss", 0.7}},
      .layer_metrics = {{"expert_balance", {1.5, 3}}, {"expert_least", {0.5, 0.25}}}};
  {
    EventFile file(folder_, {});
    file.text("arguments", "num_layers: 2", 0);
    write_step(file, record, PhaseTimes{{1, 2, 3, 4, 5, 6}}, 8, settings);
    write_eval(file, {.iteration = 7, .consumed_samples = 56, .loss = 0.5, .sop_loss = 0.75}, settings);
    write_eval(file, {.iteration = 7, .consumed_samples = 56, .set = "validation-code", .loss = 0.25},
               settings);
    write_time(file, Phase::kCheckpoint, 1.25, 8, settings);
    write_time(file, Phase::kEvaluate, 1, 8, {});
  }
  auto seen = read_by_tensorboard();
  const auto expect = [&](const std::string& tag, int step, double value) {
    ASSERT_TRUE(seen["scalars"].contains(tag)) << tag;
    EXPECT_EQ(seen["scalars"][tag][0][0], step) << tag;
    EXPECT_NEAR(seen["scalars"][tag][0][1].get<double>(), value, 1e-6 * value) << tag;
  };
  expect("lm loss", 7, 2.5);
  expect("sop loss validation", 7, 0.75);
  expect("sop loss validation vs samples", 56, 0.75);
  expect("lm loss vs samples", 56, 2.5);
  expect("learning-rate", 7, 0.25);
  expect("learning-rate vs samples", 56, 0.25);
  expect("batch-size", 7, 8);
  expect("grad-norm", 7, 0.5);
  expect("loss-scale", 7, 4);
  expect("num-zeros", 7, 3);
  expect("moe/expert_balance", 7, 3);
  expect("moe/expert_least", 7, 0.25);
  expect("throughput", 7, 12);
  expect("load_balancing_loss", 7, 1.5);
  expect("params-norm", 7, 7.5);
  expect("params-norm vs samples", 56, 7.5);
  expect("sop loss", 7, 0.7);
  expect("iteration-time", 7, 0.5);
  expect("forward-backward-time", 7, 2);
  expect("checkpoint-time", 8, 1.25);  // a phase outside of steps
  EXPECT_FALSE(seen["scalars"].contains("evaluate-time"));
  expect("mem-max-allocated-bytes", 7, 1024);
  expect("lm loss validation", 7, 0.5);
  expect("lm loss validation ppl vs samples", 56, std::exp(0.5));
  expect("lm loss validation-code", 7, 0.25);
  EXPECT_EQ(seen["text"]["arguments"], "num_layers: 2");
}

TEST_F(EventFiles, HaveTheRouterLossesOfEachLayer) {
  StepRecord record{.iteration = 7};
  record.layer_losses = {{"load_balancing_loss", {{1, 1.25}, {3, 1.75}}}};
  {
    EventFile file(folder_, {});
    write_step(file, record, {}, 8, {});
  }
  const nlohmann::json scalars = read_by_tensorboard().at("scalars");
  EXPECT_EQ(scalars.at("moe/load_balancing_loss_layer_1").at(0).at(1), 1.25);
  EXPECT_EQ(scalars.at("moe/load_balancing_loss_layer_3").at(0).at(1), 1.75);
}

TEST_F(EventFiles, SwitchedOffTagsAreAbsent) {
  {
    EventFile file(folder_, {});
    write_step(file, {.iteration = 1}, {}, 8, {});
    write_eval(file, {.iteration = 1}, {});
  }
  auto scalars = read_by_tensorboard()["scalars"];
  for (const char* tag : {"iteration-time", "mem-max-allocated-bytes", "num-zeros", "lm loss validation ppl",
                          "sop loss validation"})
    EXPECT_FALSE(scalars.contains(tag)) << tag;
}

/// Writes steps first..last of 8 samples each; their loss is `loss` + the step.
void write_steps(const fs::path& folder, const ResumePoint& loaded, int first, int last, double loss) {
  EventFile file(folder, loaded);
  file.text("arguments", "num_layers: 2", loaded.step);
  for (int i = first; i <= last; ++i) {
    write_step(file, {.iteration = i, .consumed_samples = i * 8, .lm_loss = loss + i}, {}, 8, {});
    if (i % 2 == 0) write_eval(file, {.iteration = i, .consumed_samples = i * 8, .loss = loss + i}, {});
  }
}

/// Renames the folder's only file to sort before those of later runs.
void rename_to_run(int number, const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().find(".colonnade") == std::string::npos)
      fs::rename(entry.path(), folder / fmt::format("events.out.tfevents.{}.colonnade", number));
}

TEST_F(EventFiles, ResumedRunContinuesEveryCurve) {
  write_steps(folder_, {}, 1, 4, 0);
  rename_to_run(1, folder_);
  write_steps(folder_, {4, 32}, 5, 6, 10);
  auto scalars = read_by_tensorboard()["scalars"];
  EXPECT_EQ(scalars["lm loss"].dump(), "[[1,1.0],[2,2.0],[3,3.0],[4,4.0],[5,15.0],[6,16.0]]");
  EXPECT_EQ(scalars["lm loss vs samples"].dump(), "[[8,1.0],[16,2.0],[24,3.0],[32,4.0],[40,15.0],[48,16.0]]");
  EXPECT_EQ(scalars["lm loss validation"].dump(), "[[2,2.0],[4,4.0],[6,16.0]]");
  EXPECT_EQ(scalars["lm loss validation vs samples"].dump(), "[[16,2.0],[32,4.0],[48,16.0]]");
}

TEST_F(EventFiles, RunResumedFromAnEarlierStepReplacesLaterEvents) {
  write_steps(folder_, {}, 1, 4, 0);
  rename_to_run(1, folder_);
  write_steps(folder_, {4, 32}, 5, 6, 10);
  rename_to_run(2, folder_);
  write_steps(folder_, {2, 16}, 3, 3, 20);
  auto seen = read_by_tensorboard();
  EXPECT_EQ(seen["scalars"]["lm loss"].dump(), "[[1,1.0],[2,2.0],[3,23.0]]");
  EXPECT_EQ(seen["scalars"]["lm loss vs samples"].dump(), "[[8,1.0],[16,2.0],[24,23.0]]");
  EXPECT_EQ(seen["scalars"]["lm loss validation vs samples"].dump(), "[[16,2.0]]");
  EXPECT_EQ(seen["text"]["arguments"], "num_layers: 2");
}

TEST_F(EventFiles, ResumedRunDropsATornEventAndKeepsOtherFiles) {
  write_steps(folder_, {}, 1, 2, 0);
  rename_to_run(1, folder_);
  const fs::path first = folder_ / "events.out.tfevents.1.colonnade";
  const std::string whole = read_file(first);
  std::ofstream(first, std::ios::app | std::ios::binary) << std::string(13, '\x07');
  std::ofstream(folder_ / "notes.txt") << "mine";
  write_steps(folder_, {2, 16}, 3, 3, 0);
  EXPECT_EQ(read_file(first), whole);
  EXPECT_EQ(read_file(folder_ / "notes.txt"), "mine");
}

}  // namespace
}  // namespace colonnade::record
