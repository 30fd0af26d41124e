// Switches of the command line reach the model. Their computations are tested with the layers and ops
// (tests/layers, tests/ops); these tests check that the built model uses the right one.
#include <gmock/gmock.h>

#include "job/runs.h"

namespace colonnade::job {
namespace {

using test::operator+;
using testing::ElementsAre;

constexpr const char* kSwitchModel =
    "--num-layers 2 --hidden-size 48 --ffn-hidden-size 64 --num-attention-heads 4 --vocab-size 61 "
    "--seq-length 16 --max-position-embeddings 16 --micro-batch-size 2 --global-batch-size 2 "
    "--init-method-std 0.3 --hidden-dropout 0 --attention-dropout 0 ";

test::Curve curve_of(const std::string& flags, int steps, int world = 1) {
  return test::train(test::settings(world, test::words(kSwitchModel + flags)), steps);
}

TEST(Switches, EachChangesTheModel) {
  const std::string rope = "--position-embedding-type rope ";
  std::map<double, std::string> losses;
  for (const std::string& flags : {std::string("--activation gelu"),
                                   std::string("--activation gelu-tanh"),
                                   std::string("--activation squared-relu"),
                                   std::string("--activation relu"),
                                   std::string("--activation swiglu"),
                                   std::string("--activation geglu"),
                                   std::string("--activation geglu-tanh"),
                                   std::string("--normalization RMSNorm"),
                                   std::string("--norm-epsilon 0.01"),
                                   std::string("--position-embedding-type none"),
                                   rope,
                                   rope + "--rotary-base 100",
                                   rope + "--rotary-percent 0.5",
                                   rope + "--rotary-interleaved",
                                   rope + "--rotary-seq-len-interpolation-factor 4",
                                   rope + "--use-rope-scaling --rope-original-max-position-embeddings 4",
                                   rope + "--qk-layernorm",
                                   rope + "--qk-l2-norm",
                                   rope + "--attention-output-gate",
                                   rope + "--use-mup",
                                   rope + "--window-size 3,0",
                                   rope + "--group-query-attention --num-query-groups 2",
                                   rope + "--kv-channels 8",
                                   rope + "--untie-embeddings-and-output-weights",
                                   rope + "--embedding-init-method-std 0.1",
                                   rope + "--init-method-xavier-uniform"}) {
    const double loss = curve_of(flags, 1).loss[0];
    const auto above = losses.lower_bound(loss * (1 - 1e-6));
    if (above != losses.end()) {
      EXPECT_GT(above->first, loss * (1 + 1e-6)) << flags << " is " << above->second;
    }
    losses[loss] = flags;
  }
}

/// The linear biases of a one-layer model, with their numbers of elements.
std::vector<std::string> linear_biases(const std::string& flags) {
  std::vector<std::string> found;
  test::on_jobs(
      test::settings(1, test::words(kSwitchModel + std::string("--num-layers 1 ") + flags)), [&](Job& job) {
        for (const tensor::Parameter* p : job.parameters())
          if (const auto at = p->spec.name.find("linear_"); at != std::string::npos && p->value.dim() == 1)
            found.push_back(fmt::format("{} {}", p->spec.name.substr(at), p->value.numel()));
      });
  return found;
}

TEST(Switches, LinearLayersHaveTheRequestedBiases) {
  const auto all =
      ElementsAre("linear_qkv.bias 144", "linear_proj.bias 48", "linear_fc1.bias 64", "linear_fc2.bias 48");
  EXPECT_THAT(linear_biases(""), all);
  EXPECT_THAT(linear_biases("--add-qkv-bias"), all);
  EXPECT_THAT(linear_biases("--disable-bias-linear"), ElementsAre());
  EXPECT_THAT(linear_biases("--disable-bias-linear --add-qkv-bias"), ElementsAre("linear_qkv.bias 144"));
}

// A gamma stored as gamma - 1 starts at 0 and gets the same updates: the run is the same in every layout.
TEST(Switches, GammaStoredAsGammaMinusOneGivesTheSameRun) {
  for (const std::string& norm : {std::string("LayerNorm"), std::string("RMSNorm")}) {
    const std::string flags = "--normalization " + norm + " --qk-layernorm ";
    const test::Curve plain = curve_of(flags, 4);
    EXPECT_GT(std::abs(plain.loss[3] / plain.loss[0] - 1), 1e-2);
    for (const test::Layout& layout :
         {test::Layout{"One", 1, ""},
          test::Layout{"Tp2Sp", 2, "--tensor-model-parallel-size 2 --sequence-parallel"}}) {
      const test::Curve kept = curve_of(flags + "--apply-layernorm-1p " + layout.flags, 4, layout.world);
      for (std::size_t i = 0; i < plain.loss.size(); ++i)
        EXPECT_NEAR(kept.loss[i], plain.loss[i], 2e-5 * plain.loss[i]) << norm << " " << layout.name << i;
    }
  }
}

/// Loss of the last of eight `tokens`, in a one-layer model.
double last_loss(const std::string& positions, const std::vector<std::int64_t>& tokens) {
  const auto run = test::settings(1, test::words(std::string(kSwitchModel) +
                                                 "--num-layers 1 --seq-length 8 --micro-batch-size 1 "
                                                 "--global-batch-size 1 --position-embedding-type " +
                                                 positions));
  double loss = 0;
  test::on_jobs(run, [&](Job& job) {
    pipeline::Steps steps = test::steps_after(job, 0);
    steps.batch = [&](int) {
      tensor::Batch batch = test::batch_of(job.run, 0);
      batch.set(tensor::Field::kTokens, at::tensor(tokens, at::kLong).view({1, 8}));
      batch.set(tensor::Field::kLossMask, (at::arange(8) == 7).to(at::kFloat).view({1, 8}));
      return batch;
    };
    loss = job.evaluate(1, [&](int) { return steps; }).at("lm_loss");
  });
  return loss;
}

TEST(Switches, WithoutPositionsTheOrderOfEarlierTokensIsIrrelevant) {
  const std::vector<std::int64_t> some{3, 14, 15, 9, 26, 5, 35, 8}, others{35, 9, 3, 5, 15, 26, 14, 8};
  EXPECT_NEAR(last_loss("none", some), last_loss("none", others), 1e-5);
  for (const char* positions : {"rope", "learned_absolute"})
    EXPECT_GT(std::abs(last_loss(positions, some) - last_loss(positions, others)), 1e-3) << positions;
}

}  // namespace
}  // namespace colonnade::job
