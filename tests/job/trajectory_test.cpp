// 40 steps from the recorded weights and tokens follow the curve recorded with Megatron Core 0.16.1,
// in every layout, and the layouts agree with each other.
#include <gtest/gtest.h>

#include <cmath>

#include "colonnade/base/files.h"
#include "colonnade/checkpoint/safetensors.h"
#include "colonnade/comm/thread_ranks.h"
#include "colonnade/config/derive.h"
#include "colonnade/config/parse.h"
#include "colonnade/job/checkpoint.h"
#include "colonnade/job/job.h"
#include "colonnade/job/token_steps.h"
#include "colonnade/models/hf/config.h"
#include "colonnade/rules/rules.h"
#include "support/device.h"
#include "support/long.h"
#include "support/recorded_curve.h"
#include "support/vectors.h"

namespace colonnade::job {
namespace {

/// Folder of a recorded model: llama or moe.
std::string folder_of(const std::string& model) { return test::vectors() + "/trajectory/" + model; }

/// The settings of vectors/trajectory/manifest.json.
config::Run settings(const std::string& model, int world, const std::vector<std::string>& layout) {
  std::vector<std::string> words = {"gpt",
                                    "--micro-batch-size",
                                    "2",
                                    "--global-batch-size",
                                    "8",
                                    "--seq-length",
                                    "64",
                                    "--train-iters",
                                    "40",
                                    "--lr",
                                    "0.003",
                                    "--weight-decay",
                                    "0.1",
                                    "--adam-beta2",
                                    "0.95",
                                    "--clip-grad",
                                    "1.0",
                                    "--hidden-dropout",
                                    "0",
                                    "--attention-dropout",
                                    "0",
                                    "--mock-data",
                                    "--tokenizer-type",
                                    "NullTokenizer",
                                    "--device",
                                    test::device_flag()};
  words.insert(words.end(), layout.begin(), layout.end());
  if (model == "moe") words.insert(words.end(), {"--moe-aux-loss-coeff", "0.01"});
  config::Run run = config::parse(words);
  run.parallel.world_size = world;
  const std::string file = folder_of(model) + "/config.json";
  config::fill(run, models::hf::settings_of(nlohmann::json::parse(read_file(file)), file), file);
  config::derive(run);
  rules::require(run);
  return run;
}

/// Recorded token rows: row step * 8 + b holds 65 tokens.
at::Tensor recorded_tokens() {
  const checkpoint::SafetensorsFile file(test::vectors() + "/trajectory/tokens.safetensors");
  return file.view(file.tensors().begin()->first).to(test::device(), at::kLong).view({40, 8, 65});
}

pipeline::Steps recorded_steps(const Job& job, const at::Tensor& tokens, int step) {
  pipeline::Steps steps;
  steps.batch = [&job, tokens, step](int microbatch) {
    const auto row = (microbatch * job.data_ranks() + job.data_rank()) * 2;
    const at::Tensor rows = tokens[step].narrow(0, row, 2);
    tensor::Batch batch;
    batch.set(tensor::Field::kTokens, rows.narrow(1, 0, 64).contiguous());
    batch.set(tensor::Field::kLabels, rows.narrow(1, 1, 64).contiguous());
    batch.set(tensor::Field::kLossMask, at::ones({2, 64}, test::options(at::kFloat)));
    return context_shard(std::move(batch), job.ranks.coord(layout::Axis::kCp),
                         job.run.parallel.context_parallel_size);
  };
  steps.loss = [](const at::Tensor& output, const tensor::Batch& batch) {
    return token_loss(output, batch, false);
  };
  return steps;
}

struct Curve {
  std::vector<double> loss, load_balancing_loss, grad_norm;
};

Curve train(const std::string& model, int world, const std::vector<std::string>& layout, int count) {
  const config::Run run = settings(model, world, layout);
  const auto recorded = test::recorded_curve("tp1", model);
  const at::Tensor tokens = recorded_tokens();
  Curve curve;
  comm::run_ranks(run.parallel, [&](comm::Communicators& ranks) {
    Job job(run, ranks);
    restore(job, checkpoint::CheckpointReader::open_hugging_face(folder_of(model)), Restore::kWeights);
    for (int step = 0; step < count; ++step) {
      const auto report =
          job.train_step(recorded_steps(job, tokens, step),
                         {.learning_rate = recorded[static_cast<std::size_t>(step)].lr, .weight_decay = 0.1});
      if (ranks.rank() != world - 1) continue;
      curve.loss.push_back(report.losses.at("lm_loss"));
      if (model == "moe") curve.load_balancing_loss.push_back(report.losses.at("load_balancing_loss"));
      curve.grad_norm.push_back(report.optimizer.grad_norm);
    }
  });
  return curve;
}

/// Tolerances of the manifest: steps 1-10 loss 1e-6 and norm 1e-5, all 40 loss 1e-5 and norm 1e-3, the
/// load-balancing loss 1e-4.
void expect_follows(const Curve& curve, const std::string& model, const std::string& name,
                    std::size_t count) {
  const auto recorded = test::recorded_curve(name, model);
  ASSERT_EQ(recorded.size(), 40U);
  ASSERT_EQ(curve.loss.size(), count);
  for (std::size_t i = 0; i < count; ++i) {
    const double loss_bound = i < 10 ? 1e-6 : 1e-5;
    const double norm_bound = i < 10 ? 1e-5 : 1e-3;
    EXPECT_NEAR(curve.loss[i], recorded[i].loss, loss_bound * recorded[i].loss) << name << " step " << i + 1;
    EXPECT_NEAR(curve.grad_norm[i], recorded[i].grad_norm, norm_bound * recorded[i].grad_norm)
        << name << " step " << i + 1;
    if (model == "moe") {
      EXPECT_NEAR(curve.load_balancing_loss[i], recorded[i].load_balancing_loss,
                  1e-4 * recorded[i].load_balancing_loss)
          << name << " step " << i + 1;
    }
  }
}

struct RecordedLayout {
  const char* model;
  const char* name;
  const char* curve;  ///< recorded curve to follow
  int world;
  std::vector<std::string> flags;
};

void PrintTo(const RecordedLayout& layout, std::ostream* out) { *out << layout.name; }

class Trajectory : public testing::TestWithParam<RecordedLayout> {};

// All 40 steps on one rank, and in the full family; otherwise 20 in each layout.
TEST_P(Trajectory, FollowsTheRecordedMegatronCurve) {
  const RecordedLayout& layout = GetParam();
  const int count = layout.world == 1 || test::full_families() ? 40 : 20;
  expect_follows(train(layout.model, layout.world, layout.flags, count), layout.model, layout.curve,
                 static_cast<std::size_t>(count));
}

const std::vector<std::string> kTp2 = {"--tensor-model-parallel-size", "2"};
const std::vector<std::string> kPp2 = {"--pipeline-model-parallel-size", "2"};
const std::vector<std::string> kCp2 = {"--context-parallel-size", "2"};
const std::vector<std::string> kFourStages = {"--pipeline-model-parallel-layout", "E|t|t|L"};

std::vector<std::string> both(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const std::vector<std::string> kSharded = {"--use-megatron-fsdp"};
const std::vector<std::string> kFullRecomputeByOne = {
    "--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1"};

INSTANTIATE_TEST_SUITE_P(
    Llama, Trajectory,
    testing::Values(
        RecordedLayout{"llama", "Tp1", "tp1", 1, {}}, RecordedLayout{"llama", "Tp2", "tp2", 2, kTp2},
        RecordedLayout{"llama", "Tp2Sp", "tp2_sp", 2, both(kTp2, {"--sequence-parallel"})},
        RecordedLayout{"llama", "Pp2", "pp2", 2, kPp2},
        RecordedLayout{"llama", "Pp2Virtual2", "pp2", 2, both(kPp2, kFourStages)},
        RecordedLayout{"llama", "Pp2ZbH1", "pp2", 2, both(kPp2, {"--pipeline-schedule", "zb-h1"})},
        RecordedLayout{"llama", "Pp2ZbV", "pp2", 2,
                       both(both(kPp2, kFourStages), {"--pipeline-schedule", "zb-v"})},
        RecordedLayout{"llama", "Pp2DualPipeV", "pp2", 2,
                       both(both(kPp2, kFourStages), {"--pipeline-schedule", "dualpipe-v"})},
        RecordedLayout{"llama", "Pp2DelayedWeights", "pp2", 2, both(kPp2, {"--delay-wgrad-compute"})},
        RecordedLayout{"llama", "Dp2", "dp2", 2, {}},
        RecordedLayout{
            "llama", "Dp2Overlap", "dp2", 2, {"--overlap-grad-reduce", "--ddp-bucket-size", "20000"}},
        RecordedLayout{"llama", "Dp2Distributed", "dp2_distopt", 2, {"--use-distributed-optimizer"}},
        RecordedLayout{"llama",
                       "Dp2DistributedOverlap",
                       "dp2_distopt",
                       2,
                       {"--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather",
                        "--ddp-bucket-size", "20000"}},
        RecordedLayout{"llama", "Dp2ShardedGradients", "dp2_distopt", 2,
                       both(kSharded, {"--data-parallel-sharding-strategy", "optim_grads"})},
        RecordedLayout{"llama", "Dp2Sharded", "dp2_distopt", 2, kSharded},
        RecordedLayout{"llama", "Tp2Pp2Dp2ShardedRecomputed", "tp2_pp2", 8,
                       both(both(both(kTp2, kPp2), kSharded),
                            both(kFullRecomputeByOne, {"--overlap-grad-reduce", "--overlap-param-gather"}))},
        RecordedLayout{"llama", "Tp2Pp2", "tp2_pp2", 4, both(kTp2, kPp2)},
        RecordedLayout{"llama", "Tp2Pp2Dp2", "tp2_pp2", 8,
                       both(both(kTp2, kPp2), {"--use-distributed-optimizer"})},
        RecordedLayout{"llama", "Cp2", "tp1", 2, kCp2},
        RecordedLayout{"llama",
                       "Cp4AllGather",
                       "tp1",
                       4,
                       {"--context-parallel-size", "4", "--cp-comm-type", "all_gather"}},
        RecordedLayout{"llama", "Cp2Tp2SpDp2", "tp2_sp", 8,
                       both(both(kTp2, {"--sequence-parallel", "--use-distributed-optimizer"}),
                            both(kCp2, {"--cp-comm-type", "a2a"}))},
        RecordedLayout{"llama", "Tp4MoreRanksThanGroups", "tp1", 4, {"--tensor-model-parallel-size", "4"}}),
    [](const auto& info) { return std::string(info.param.name); });

const std::vector<std::string> kTp2Sp = both(kTp2, {"--sequence-parallel"});
const std::vector<std::string> kEp2 = {"--expert-model-parallel-size", "2"};
const std::vector<std::string> kEtp1 = {"--expert-tensor-parallel-size", "1"};
const std::vector<std::string> kExchange = {"--moe-token-dispatcher-type", "alltoall"};

INSTANTIATE_TEST_SUITE_P(
    Moe, Trajectory,
    testing::Values(
        RecordedLayout{"moe", "Tp1", "tp1", 1, {}}, RecordedLayout{"moe", "Dp2", "dp2", 2, {}},
        RecordedLayout{"moe", "Dp2Distributed", "dp2", 2, {"--use-distributed-optimizer"}},
        RecordedLayout{"moe", "Dp2Recomputed", "dp2", 2, kFullRecomputeByOne},
        RecordedLayout{"moe", "Ep2Dp4ShardedRecomputed", "ep2", 4,
                       both(both(kEp2, kSharded), kFullRecomputeByOne)},
        RecordedLayout{"moe", "Ep2", "ep2", 2, kEp2},
        RecordedLayout{"moe", "Ep2Exchange", "ep2", 2, both(kEp2, kExchange)},
        RecordedLayout{"moe", "Ep2Dp4Distributed", "ep2", 4, both(kEp2, {"--use-distributed-optimizer"})},
        RecordedLayout{"moe", "Tp2Sp", "tp2_sp", 2, kTp2Sp},
        RecordedLayout{"moe", "Tp2SpExchange", "tp2_sp", 2, both(kTp2Sp, kExchange)},
        RecordedLayout{"moe", "Tp2SpEp2", "tp2_ep2_sp", 2, both(both(kTp2Sp, kEp2), kEtp1)},
        RecordedLayout{"moe", "Tp2SpEp2Etp2", "tp2_ep2_sp", 4, both(both(kTp2Sp, kEp2), kExchange)},
        RecordedLayout{"moe", "Pp2", "pp2", 2, kPp2},
        RecordedLayout{"moe", "Pp2ZbH1", "pp2", 2, both(kPp2, {"--pipeline-schedule", "zb-h1"})},
        RecordedLayout{"moe", "Cp2Ep2", "ep2", 2, both(kCp2, both(kEp2, kExchange))},
        RecordedLayout{"moe", "Pp2Ep2", "pp2", 4, both(both(kPp2, kEp2), kExchange)}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace colonnade::job
