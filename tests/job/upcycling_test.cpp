// An upcycled model starts with the values of its definition and with the loss of its dense checkpoint, in
// every layout.
#include "colonnade/job/upcycling.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "checkpoint/fixtures.h"
#include "colonnade/base/error.h"
#include "colonnade/job/prepare.h"
#include "job/runs.h"
#include "job/saved_runs.h"

namespace colonnade::job {
namespace {

using at::Tensor;
using checkpoint::CheckpointReader;
using testing::HasSubstr;
using namespace saved;  // from saved_runs.h

/// Biases, LayerNorm, learned positions; scaled weights give the exact output. No Hugging Face family.
constexpr const char* kSquaredRelu = "--squared-relu --hidden-dropout 0 --attention-dropout 0 ";
constexpr const char* kNoDropout = "--hidden-dropout 0 --attention-dropout 0 ";
constexpr const char* kUpcycled = "--num-experts 4 --moe-use-upcycling ";

std::vector<Saved> upcycled_layouts() {
  std::vector<Saved> layouts(std::begin(kWithExperts), std::end(kWithExperts));
  layouts.push_back({4, "--use-megatron-fsdp --expert-model-parallel-size 2"});
  layouts.push_back(
      {2,
       "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v --pipeline-model-parallel-layout E|t|t|L"});
  return layouts;
}

class Upcycling : public testing::Test {
 protected:
  /// Saves a dense model after a step. Returns the float64 loss of its values.
  double save_dense(const std::string& flags) const {
    test::on_jobs(saved_run(kOne, flags), [&](Job& job) {
      test::train(job, 1);
      save_in(job, folder_.path() / "dense");
    });
    double loss = 0;
    test::on_jobs(
        saved_run(kOne, flags),
        [&](Job& job) {
          restore(job, dense(), Restore::kWeights);
          loss = test::train(job, 1).loss[0];
        },
        test::kFloat64);
    return loss;
  }
  [[nodiscard]] CheckpointReader dense() const { return CheckpointReader::open(folder_.path() / "dense"); }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  /// An upcycled run in a layout.
  [[nodiscard]] config::Run upcycled_run(const Saved& layout, const std::string& flags) const {
    return saved_run(layout, flags + kUpcycled + "--pretrained-checkpoint " + path("dense") + " ");
  }

  void expect_loss_of_dense(const std::string& flags, const std::string& upcycling) const {
    const double loss = save_dense(flags);
    for (const Saved& layout : upcycled_layouts()) {
      SCOPED_TRACE(layout.flags);
      test::on_jobs(
          upcycled_run(layout, flags + upcycling),
          [&](Job& job) {
            upcycle(job, dense());
            EXPECT_EQ(job.counters.iteration, 0);
            EXPECT_NEAR(test::train(job, 1).loss[0], loss, 1e-9 * loss);
          },
          test::kFloat64);
    }
  }

  checkpoint::test::TempFolder folder_;
};

TEST_F(Upcycling, EqualExpertsHaveTheLossOfTheDenseModel) {
  expect_loss_of_dense(kLlamaRun, "--moe-router-topk 4 ");
  expect_loss_of_dense(std::string(kGpt2) + kNoDropout, "--moe-router-topk 4 ");
}

/// With the softmax over all four experts before or after the selection, which takes all of them.
TEST_F(Upcycling, HalvedExpertsHaveTheLossOfTheDenseModel) {
  const std::string halved = "--moe-router-topk 4 --ffn-hidden-size 12 --moe-upcycling-granularity 2 ";
  expect_loss_of_dense(kSquaredRelu, halved);
  expect_loss_of_dense(kSquaredRelu, halved + "--moe-router-pre-softmax ");
}

using Values = std::map<std::string, Tensor>;

/// All values of a job on one rank.
Values values_of(
    const config::Run& run, const std::function<void(Job&)>& start = [](Job&) {}) {
  Values values;
  test::on_jobs(run, [&](Job& job) {
    start(job);
    for (const tensor::Parameter* p : job.parameters()) values[p->spec.name] = p->value.detach().clone();
  });
  return values;
}

/// This rank's part of `expected` in the values of the job.
void expect_values(Job& job, const Values& expected) {
  for (const tensor::Parameter* p : job.parameters()) {
    const std::string& name = p->spec.name;
    const Tensor local = at::zeros(p->shard.shape);
    for (const layout::ShardBox& part : p->shard.boxes)
      tensor::box_view(local, part.local, part.length)
          .copy_(tensor::box_view(expected.at(name), part.global, part.length));
    const data_parallel::LocalSlice here = job.buffers().local_slice(*p);
    const Tensor wanted = local.flatten().narrow(0, here.begin, here.values.numel());
    EXPECT_TRUE(at::allclose(here.values, wanted, 1e-6, 1e-12)) << name;
  }
}

/// Granularity 2 and weights of a softmax over all experts, as in Megatron's _convert_to_moe_state_dict.
TEST_F(Upcycling, ValuesFollowTheirDefinition) {
  save_dense(kLlamaRun);
  const std::string flags = std::string(kLlamaRun) +
                            "--moe-router-topk 2 --moe-router-pre-softmax --ffn-hidden-size 12 "
                            "--moe-upcycling-granularity 2 --moe-shared-expert-intermediate-size 8 ";
  const Values from =
      values_of(saved_run(kOne, kLlamaRun), [&](Job& job) { restore(job, dense(), Restore::kWeights); });
  Values expected = values_of(upcycled_run(kOne, flags));  // initial values
  const double scale = std::cbrt(2.0 * 2 * 2 / 2);         // (experts / 2) x 2^2 / k
  const std::int64_t f = 12;
  for (auto& [name, value] : expected) {
    const std::size_t experts = name.find("experts.");
    if (from.contains(name)) value = from.at(name);
    if (name.ends_with("router.weight")) value = value.index_select(0, at::tensor({0, 0, 1, 1}));
    if (experts == std::string::npos || name.find("shared_experts") != std::string::npos) continue;
    const Tensor mlp = from.at(std::string(name).erase(experts, 8)) * scale;
    for (std::int64_t e = 0; e < 4; ++e) {
      const std::int64_t half = e % 2 * f;
      value[e].copy_(name.find("fc2") != std::string::npos
                         ? mlp.narrow(1, half, f)
                         : at::cat({mlp.narrow(0, half, f), mlp.narrow(0, 2 * f + half, f)}));
    }
  }
  for (const Saved& layout : upcycled_layouts()) {
    SCOPED_TRACE(layout.flags);
    test::on_jobs(upcycled_run(layout, flags), [&](Job& job) {
      upcycle(job, dense());
      expect_values(job, expected);
      for (const optim::Segment& s : job.optimizer().segments())
        for (const Tensor& state : s.states) EXPECT_EQ(state.count_nonzero().item<std::int64_t>(), 0);
    });
  }
}

/// The run after job::prepare, or the faults.
std::string prepare_fault(config::Run& run) {
  try {
    prepare(run, rules::Purpose::kTrain);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

config::Run parsed(const std::string& flags) {
  return config::parse(
      test::words("gpt --mock-data --tokenizer-type NullTokenizer --seq-length 8 "
                  "--micro-batch-size 1 --train-iters 1 --lr 1 " +
                  flags));
}

TEST_F(Upcycling, TakesTheOtherSettingsFromTheDenseCheckpoint) {
  save_dense(kLlamaRun);
  for (const char* source : {"--pretrained-checkpoint ", "--load "}) {
    config::Run run = parsed(source + path("dense") + " --save " + path("new") + " " + kUpcycled +
                             "--moe-upcycling-granularity 2");
    EXPECT_EQ(prepare_fault(run), "");
    EXPECT_EQ(run.model.moe.num_experts, 4);
    EXPECT_EQ(run.model.ffn_hidden_size, 12);
    EXPECT_EQ(run.model.moe.ffn_hidden_size, 12);
    EXPECT_EQ(run.model.hidden_size, 16);
    EXPECT_TRUE(upcycles(run, dense()));
  }
}

TEST_F(Upcycling, FaultsNameTheFix) {
  save_dense(kLlamaRun);
  test::on_jobs(saved_run(kOne, std::string(kLlamaRun) + kExpertFlags),
                [&](Job& job) { save_in(job, path("moe")); });
  const auto fault = [&](const std::string& source, const std::string& flags) {
    config::Run run = parsed(source + " " + kUpcycled + flags);
    return prepare_fault(run);
  };
  const std::string from = "--pretrained-checkpoint " + path("dense");
  EXPECT_THAT(
      fault(from, "--ffn-hidden-size 12"),
      testing::AllOf(HasSubstr("got 12 x 1 and 24 in "), HasSubstr("set --moe-upcycling-granularity 2")));
  EXPECT_THAT(fault(from, "--ffn-hidden-size 10"), HasSubstr("remove --ffn-hidden-size"));
  EXPECT_THAT(fault(from, "--moe-upcycling-granularity 5"), HasSubstr("must divide the FFN hidden size"));
  EXPECT_THAT(fault("--pretrained-checkpoint " + path("moe"), ""),
              HasSubstr("--moe-use-upcycling requires a dense checkpoint; got one with 4 experts in "));
  EXPECT_THAT(fault("--load " + path("dense") + " --save " + path("dense"), ""),
              HasSubstr("--save must not be the folder of the dense run"));
}

/// The same command resumes the upcycled run, whose checkpoints are in --save.
TEST_F(Upcycling, SecondStartResumes) {
  save_dense(kLlamaRun);
  test::on_jobs(upcycled_run(kOne, std::string(kLlamaRun) + "--moe-router-topk 2 "), [&](Job& job) {
    upcycle(job, dense());
    test::train(job, 1);
    save_in(job, path("new"));
  });
  for (const char* source : {"--pretrained-checkpoint ", "--load "}) {
    config::Run run =
        parsed(source + path("dense") + " --save " + path("new") + " --ffn-hidden-size 24 " + kUpcycled);
    EXPECT_EQ(prepare_fault(run), "");
    EXPECT_EQ(run.checkpoint.load, path("new"));
    EXPECT_THAT(run.notes, testing::Contains(HasSubstr("the upcycled run in " + path("new") + " resumes")));
    EXPECT_FALSE(upcycles(run, CheckpointReader::open(path("new"))));
  }
}

}  // namespace
}  // namespace colonnade::job
