// Event files: the checksum against published values, the frames, and what the real TensorBoard reads.
#include "colonnade/train/tensorboard.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "colonnade/base/files.h"

namespace colonnade::train {
namespace {

namespace fs = std::filesystem;

const fs::path kPython = fs::path(COLONNADE_VECTORS) / "../../.venv/bin/python";

// Prints {"scalars": {tag: [[step, value], ...]}, "text": {tag: value}} as TensorBoard sees the folder.
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

  [[nodiscard]] nlohmann::json seen_by_tensorboard() const {
    fs::create_directories(folder_);
    const fs::path script = folder_ / "reader.py";
    std::ofstream(script) << kReader;
    const std::string command =
        fmt::format("{} {} {} 2>/dev/null", kPython.string(), script.string(), folder_.string());
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
    std::string text(1 << 20, '\0');
    text.resize(std::fread(text.data(), 1, text.size(), pipe.get()));
    return nlohmann::json::parse(text);
  }

  fs::path folder_;
};

bool has_tensorboard() {
  const std::string command = fmt::format("{} -c 'import tensorboard' >/dev/null 2>&1", kPython.string());
  return std::system(command.c_str()) == 0;
}

#define SKIP_WITHOUT_TENSORBOARD() \
  if (!has_tensorboard()) GTEST_SKIP() << "no tensorboard in .venv; run `tools/setup.sh test`"

// RFC 3720, appendix B.4.
TEST(Crc32c, GivesThePublishedValues) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
}

TEST_F(EventFiles, AreNamedSoThatTensorBoardFindsThem) {
  const EventFile file(folder_, 0);
  EXPECT_THAT(file.path().filename().string(), testing::StartsWith("events.out.tfevents."));
  EXPECT_GT(read_file(file.path()).size(), 24u) << "the version is there before the first event";
}

TEST_F(EventFiles, GiveTensorBoardMegatronsTags) {
  SKIP_WITHOUT_TENSORBOARD();
  const config::Logging settings{.log_timers_to_tensorboard = true,
                                 .log_memory_to_tensorboard = true,
                                 .log_validation_ppl_to_tensorboard = true};
  const StepRecord record{.iteration = 7,
                          .consumed_samples = 56,
                          .lm_loss = 2.5,
                          .grad_norm = 0.5,
                          .learning_rate = 0.25,
                          .loss_scale = 4,
                          .num_zeros = 3,
                          .step_ms = 500,
                          .tflops_per_device = 12,
                          .peak_memory_bytes = 1024,
                          .extra_losses = {{"load_balancing_loss", 1.5}}};
  {
    EventFile file(folder_, 0);
    file.text("arguments", "num_layers: 2", 0);
    write_step(file, record, PhaseTimes{{1, 2, 3, 4, 5, 6}}, 8, settings);
    write_eval(file, {.iteration = 7, .consumed_samples = 56, .loss = 0.5}, settings);
  }
  const auto seen = seen_by_tensorboard();
  const auto expect = [&](const std::string& tag, int step, double value) {
    ASSERT_TRUE(seen["scalars"].contains(tag)) << tag;
    EXPECT_EQ(seen["scalars"][tag][0][0], step) << tag;
    EXPECT_NEAR(seen["scalars"][tag][0][1].get<double>(), value, 1e-6 * value) << tag;
  };
  expect("lm loss", 7, 2.5);
  expect("lm loss vs samples", 56, 2.5);
  expect("learning-rate", 7, 0.25);
  expect("learning-rate vs samples", 56, 0.25);
  expect("batch-size", 7, 8);
  expect("grad-norm", 7, 0.5);
  expect("loss-scale", 7, 4);
  expect("num-zeros", 7, 3);
  expect("throughput", 7, 12);
  expect("load_balancing_loss", 7, 1.5);
  expect("iteration-time", 7, 0.5);
  expect("forward-backward-time", 7, 2);
  expect("mem-max-allocated-bytes", 7, 1024);
  expect("lm loss validation", 7, 0.5);
  expect("lm loss validation ppl vs samples", 56, std::exp(0.5));
  EXPECT_EQ(seen["text"]["arguments"], "num_layers: 2");
}

TEST_F(EventFiles, SwitchedOffTagsAreAbsent) {
  SKIP_WITHOUT_TENSORBOARD();
  {
    EventFile file(folder_, 0);
    write_step(file, {.iteration = 1}, {}, 8, {});
    write_eval(file, {.iteration = 1}, {});
  }
  const auto scalars = seen_by_tensorboard()["scalars"];
  for (const char* tag : {"iteration-time", "mem-max-allocated-bytes", "num-zeros", "lm loss validation ppl"})
    EXPECT_FALSE(scalars.contains(tag)) << tag;
}

TEST_F(EventFiles, AResumedRunReplacesLaterSteps) {
  SKIP_WITHOUT_TENSORBOARD();
  {
    EventFile first(folder_, 0);
    for (int i = 1; i <= 5; ++i) first.scalar("lm loss", i, i);
  }
  fs::rename((*fs::directory_iterator(folder_)).path(), folder_ / "events.out.tfevents.1.first");
  {
    EventFile second(folder_, 3);
    second.scalar("lm loss", 40, 4);
  }
  EXPECT_EQ(seen_by_tensorboard()["scalars"]["lm loss"].dump(), "[[1,1.0],[2,2.0],[3,3.0],[4,40.0]]");
}

}  // namespace
}  // namespace colonnade::train
