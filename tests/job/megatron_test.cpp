// Runs that continue from a checkpoint of Megatron follow the curve that Megatron recorded, in every layout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <sstream>

#include "colonnade/base/files.h"
#include "colonnade/checkpoint/safetensors.h"
#include "colonnade/comm/thread_ranks.h"
#include "colonnade/config/derive.h"
#include "colonnade/config/parse.h"
#include "colonnade/convert/open.h"
#include "colonnade/job/checkpoint.h"
#include "colonnade/job/job.h"
#include "colonnade/job/model_settings.h"
#include "colonnade/job/prepare.h"
#include "colonnade/job/token_steps.h"
#include "colonnade/rules/rules.h"
#include "support/device.h"
#include "support/recorded_curve.h"
#include "support/vectors.h"

namespace colonnade::job {
namespace {

std::string te_folder() { return test::vectors() + "/megatron_ckpt_te/megatron_ckpt/"; }

/// A step of a recorded curve.
struct Recorded {
  double loss = 0, grad_norm = 0, lr = 0;
};

/// Steps by number, of a csv with the columns step, lm_loss, grad_norm, lr_used.
std::map<int, Recorded> megatron_curve(const std::string& path) {
  std::map<int, Recorded> curve;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    int step = 0;
    Recorded row;
    if (std::sscanf(line.c_str(), "%d,%lf,%lf,%lf", &step, &row.loss, &row.grad_norm, &row.lr) == 4)
      curve[step] = row;
  }
  return curve;
}

/// A recorded run: its checkpoint, its curve, and a layout to continue in.
struct Continued {
  const char* name;
  const char* checkpoint;
  const char* curve;
  int world;
  std::vector<std::string> layout;
  double bound;  ///< relative difference of losses
};

config::Run settings_of(const Continued& test, const std::string& folder) {
  std::vector<std::string> words = {"gpt",
                                    "--load",
                                    folder,
                                    "--mock-data",
                                    "--device",
                                    test::device_flag(),
                                    "--lr",
                                    "0.01",
                                    "--clip-grad",
                                    "1.0",
                                    "--train-iters",
                                    "15",
                                    "--micro-batch-size",
                                    "2",
                                    "--global-batch-size",
                                    "8",
                                    "--tokenizer-type",
                                    "NullTokenizer",
                                    "--vocab-size",
                                    "120"};
  words.insert(words.end(), test.layout.begin(), test.layout.end());
  config::Run run = config::parse(words);
  run.parallel.world_size = test.world;
  prepare(run, rules::Purpose::kTrain, {});
  return run;
}

/// Rows of a step's tokens: micro-batch m of data rank r takes rows (m * ranks + r) * 2 and the next.
pipeline::Steps row_steps(const Job& job, const at::Tensor& tokens) {
  pipeline::Steps steps;
  const std::int64_t length = tokens.size(1) - 1;
  steps.batch = [&job, tokens, length](int microbatch) {
    const at::Tensor rows = tokens.narrow(0, (microbatch * job.data_ranks() + job.data_rank()) * 2, 2);
    tensor::Batch batch;
    batch.set(tensor::Field::kTokens, rows.narrow(1, 0, length).contiguous());
    batch.set(tensor::Field::kLabels, rows.narrow(1, 1, length).contiguous());
    batch.set(tensor::Field::kLossMask, at::ones({2, length}, test::options(at::kFloat)));
    return batch;
  };
  steps.loss = [](const at::Tensor& output, const tensor::Batch& batch) {
    return token_loss(output, batch, false);
  };
  return steps;
}

class ContinuedRun : public ::testing::TestWithParam<Continued> {};

TEST_P(ContinuedRun, FollowsTheRecordedCurve) {
  const Continued& test = GetParam();
  const std::string folder = te_folder() + test.checkpoint;
  const config::Run run = settings_of(test, folder);
  const auto curve = megatron_curve(te_folder() + test.curve);
  ASSERT_GE(curve.size(), 10U);
  const checkpoint::SafetensorsFile file(te_folder() + "tokens.safetensors");
  const at::Tensor tokens = file.view("tokens").to(test::device(), at::kLong);
  std::map<int, Recorded> got;
  comm::run_ranks(run.parallel, [&](comm::Communicators& ranks) {
    Job job(run, ranks);
    const auto source = convert::find_run(folder, std::nullopt, ranks.world());
    ASSERT_TRUE(source.has_value());
    restore(job, *source, Restore::kResume);
    const int last = curve.rbegin()->first;
    for (int step = static_cast<int>(job.counters.iteration) + 1; step <= last; ++step) {
      const auto report = job.train_step(row_steps(job, tokens[step - 1]),
                                         {.learning_rate = curve.at(step).lr, .weight_decay = 0.1});
      if (ranks.rank() == test.world - 1)
        got[step] = {report.losses.at("lm_loss"), report.optimizer.grad_norm, curve.at(step).lr};
    }
  });
  ASSERT_GE(got.size(), 5U);
  for (const auto& [step, row] : got) {
    EXPECT_NEAR(row.loss, curve.at(step).loss, test.bound * curve.at(step).loss) << "step " << step;
    EXPECT_NEAR(row.grad_norm, curve.at(step).grad_norm, 30 * test.bound * curve.at(step).grad_norm)
        << "step " << step;
  }
}

constexpr double kFp32 = 1e-5, kBf16 = 2e-3;
const std::vector<std::string> kTwoTensorRanks = {"--tensor-model-parallel-size", "2"},
                               kTwoStages = {"--pipeline-model-parallel-size", "2"};
std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

INSTANTIATE_TEST_SUITE_P(
    Vectors, ContinuedRun,
    ::testing::Values(
        Continued{"FullyTp1", "resume_dp2_fully_iter5", "resume.curve.csv", 1, {}, kFp32},
        Continued{"FullyTp2", "resume_dp2_fully_iter5", "resume.curve.csv", 2, kTwoTensorRanks, kFp32},
        Continued{"FullyPp2", "resume_dp2_fully_iter5", "resume.curve.csv", 2, kTwoStages, kFp32},
        Continued{
            "FlatDp2", "resume_dp2_dpr_iter5", "resume.curve.csv", 2, {"--use-distributed-optimizer"}, kFp32},
        Continued{"FlatTp2Pp2", "resume_dp2_dpr_iter5", "resume.curve.csv", 4,
                  joined(kTwoTensorRanks, kTwoStages), kFp32},
        Continued{"Bf16FullyTp1", "dense_tp2pp2dp2_fully", "dense.curve.csv", 1, {}, kBf16},
        Continued{"Bf16FlatTp2Pp2", "dense_tp2pp2dp2_dpr", "dense.curve.csv", 4,
                  joined(kTwoTensorRanks, kTwoStages), kBf16},
        Continued{"Bf16LegacyTp2", "dense_tp2pp2dp2_torch", "dense.curve.csv", 2, kTwoTensorRanks, kBf16}),
    [](const auto& info) { return std::string(info.param.name); });

/// The checkpoint of step 5 of the recorded trajectory, with the states of an optimizer that is not
/// distributed.
TEST(ContinuedRuns, ARunWithPlainAdamFollowsTheTrajectory) {
  const std::string folder = test::vectors() + "/megatron_ckpt/resume_llama_iter5";
  const auto recorded = test::recorded_curve("tp1", "llama");
  const checkpoint::SafetensorsFile file(test::vectors() + "/trajectory/tokens.safetensors");
  const at::Tensor tokens =
      file.view(file.tensors().begin()->first).to(test::device(), at::kLong).view({40, 8, 65});
  std::vector<std::string> words = {"gpt",
                                    "--load",
                                    folder,
                                    "--mock-data",
                                    "--device",
                                    test::device_flag(),
                                    "--lr",
                                    "0.003",
                                    "--clip-grad",
                                    "1.0",
                                    "--train-iters",
                                    "40",
                                    "--micro-batch-size",
                                    "2",
                                    "--global-batch-size",
                                    "8",
                                    "--tokenizer-type",
                                    "NullTokenizer",
                                    "--tensor-model-parallel-size",
                                    "2"};
  config::Run run = config::parse(words);
  run.parallel.world_size = 2;
  prepare(run, rules::Purpose::kTrain, {});
  comm::run_ranks(run.parallel, [&](comm::Communicators& ranks) {
    Job job(run, ranks);
    restore(job, *convert::find_run(folder, std::nullopt, ranks.world()), Restore::kResume);
    EXPECT_EQ(job.counters.iteration, 5);
    EXPECT_EQ(job.counters.consumed_samples, 40);
    for (std::size_t step = 5; step < 25; ++step) {
      const auto report = job.train_step(row_steps(job, tokens[static_cast<std::int64_t>(step)]),
                                         {.learning_rate = recorded[step].lr, .weight_decay = 0.1});
      EXPECT_NEAR(report.losses.at("lm_loss"), recorded[step].loss, 1e-5 * recorded[step].loss) << step + 1;
    }
  });
}

TEST(ContinuedRuns, ArgsOfTheCheckpointDescribeTheModelAndTheRun) {
  const auto source = convert::find_run(te_folder() + "dense_tp2pp2dp2_fully");
  ASSERT_TRUE(source.has_value());
  EXPECT_EQ(source->step(), 3);
  const auto& state = source->state();
  EXPECT_EQ(state.at("consumed_samples"), 24);
  EXPECT_EQ(state.at("optimizer").at("steps"), 3);
  const auto settings = state.at("settings");
  EXPECT_EQ(settings.at("num_layers"), "4");
  EXPECT_EQ(settings.at("activation"), "swiglu");
  EXPECT_EQ(settings.at("vocab_size"), "128");
  EXPECT_EQ(settings.at("adam_beta2"), "0.95");
  EXPECT_EQ(source->info("model.embed_tokens.weight").shape, (std::vector<std::int64_t>{128, 32}));
}

}  // namespace
}  // namespace colonnade::job
