// Adam whose states, main parameters and gradients are stored below fp32, against its definition in float64
// with explicit rounding, and in every layout.
#include <cmath>
#include <mutex>

#include "colonnade/optim/optimizer.h"
#include "colonnade/optim/scaled.h"
#include "colonnade/tensor/dtypes.h"
#include "optim/toys.h"

namespace colonnade::optim {
namespace {

using namespace toys;
using config::Dtype;

/// Roles of a bf16 run.
config::Dtypes stored_in(Dtype exp_avg, Dtype exp_avg_sq, Dtype main, Dtype grad) {
  config::Dtypes d = test::dtypes(at::kBFloat16);
  d.exp_avg = exp_avg;
  d.exp_avg_sq = exp_avg_sq;
  d.main_parameter = main;
  d.main_gradient = d.gradient_wire = grad;
  return d;
}

/// float64 values rounded to a dtype, with a scale where it has one.
Tensor rounded(const Tensor& values, Dtype dtype) {
  const at::ScalarType type = tensor::scalar_type(dtype);
  const double largest = values.abs().max().item<double>();
  if (!config::has_scale(dtype) || largest == 0) return values.to(type).to(at::kDouble);
  const double limit = dtype == Dtype::kFloat16 ? 65504.0 / 2 : 448.0;
  const double scale = std::exp2(std::ceil(std::log2(largest / limit)));
  return (values / scale).to(at::kFloat).to(type).to(at::kDouble) * scale;
}

/// The kernel computes in fp32, so an element near the middle of two stored numbers may be rounded to the
/// other one: nearly all are equal, and the rest is off by one unit of the dtype. Sums of numbers with few
/// bits
/// (`few_bits`) often lie in the middle.
void expect_rounded(const Tensor& got, const Tensor& exact, Dtype dtype, bool few_bits, const char* what) {
  const Tensor expected = rounded(exact, dtype);
  if (dtype == Dtype::kFloat32) {
    EXPECT_LT(test::distance(got, expected), 1e-6) << what;
    return;
  }
  const Tensor difference = (got.to(at::kDouble) - expected).abs();
  const double unit = dtype == Dtype::kFloat16 ? 0x1p-10 : dtype == Dtype::kBfloat16 ? 0x1p-7 : 0x1p-3;
  const double least = expected.abs().max().item<double>() * 0x1p-16;  // a subnormal number
  EXPECT_LE((difference == 0).logical_not().sum().item<std::int64_t>(),
            got.numel() / (few_bits ? 100 : 500) + 1)
      << what;
  EXPECT_TRUE((difference <= expected.abs() * unit + least).all().item<bool>()) << what;
}

struct Values {
  Tensor main, m, v;
};
Values values_of(const Segment& s) {
  return {unscaled(s.main, s.main_scale).to(at::kDouble, false, true),
          unscaled(s.states[0], s.scales[0]).to(at::kDouble, false, true),
          unscaled(s.states[1], s.scales[1]).to(at::kDouble, false, true)};
}

/// One update of every segment, from the values before it.
void check_step(Optimizer& optimizer, const config::Dtypes& dtypes, int number) {
  const config::Optimizer o = adam();
  const double lr = 0.01, decay = 0.1, scale = 0.25;
  std::vector<Values> before;
  for (const Segment& s : optimizer.segments()) before.push_back(values_of(s));
  optimizer.step({.learning_rate = lr, .weight_decay = decay, .grad_multiplier = scale});
  for (std::size_t i = 0; i < before.size(); ++i) {
    const Segment& s = optimizer.segments()[i];
    EXPECT_EQ(s.grad.scalar_type(), tensor::scalar_type(dtypes.main_gradient));
    const Tensor g = s.grad.to(at::kDouble) * scale;
    const Tensor m = o.adam_beta1 * before[i].m + (1 - o.adam_beta1) * g;
    const Tensor v = o.adam_beta2 * before[i].v + (1 - o.adam_beta2) * g * g;
    const Tensor m_hat = m / (1 - std::pow(o.adam_beta1, number));
    const Tensor v_hat = v / (1 - std::pow(o.adam_beta2, number));
    const Tensor p = before[i].main - lr * (m_hat / (v_hat.sqrt() + o.adam_eps) +
                                            s.group->weight_decay_multiplier * decay * before[i].main);
    const Values after = values_of(s);
    const bool few_bits = dtypes.main_gradient == Dtype::kBfloat16;
    expect_rounded(after.m, m, dtypes.exp_avg, few_bits, "exp_avg");
    expect_rounded(after.v, v, dtypes.exp_avg_sq, false, "exp_avg_sq");
    expect_rounded(after.main, p, dtypes.main_parameter, false, "main parameters");
    EXPECT_TRUE(at::equal(s.model, unscaled(s.main, s.main_scale).to(s.model.scalar_type())));
    for (const Tensor& workspace : {s.main_scale, s.scales[0], s.scales[1]})
      EXPECT_TRUE(!workspace.defined() || workspace[1].item<double>() == 0);
  }
}

std::vector<layout::ParamSpec> large_specs() {
  return {{.name = "weight", .shape = {150, 301}}, {.name = "bias", .shape = {9}, .weight_decay = false}};
}

void set_gradients(Toy& toy, int step, double factor) {
  toy.buffers->start_step();
  for (Parameter* p : toy.list) p->accumulate((factor * gradient(p->spec, step)).to(test::device()));
  toy.buffers->finish();
}

TEST(StoredStates, FollowTheDefinitionWithRounding) {
  constexpr Dtype kFp32 = Dtype::kFloat32, kBf16 = Dtype::kBfloat16, kFp16 = Dtype::kFloat16,
                  kFp8 = Dtype::kFloat8;
  for (const config::Dtypes& dtypes :
       {stored_in(kBf16, kBf16, kFp32, kFp32), stored_in(kBf16, kFp32, kFp32, kBf16),
        stored_in(kFp32, kBf16, kFp32, kFp32), stored_in(kFp32, kFp32, kFp32, kBf16),
        stored_in(kFp16, kFp16, kFp32, kFp32), stored_in(kFp8, kFp16, kFp32, kBf16),
        stored_in(kFp8, kBf16, kFp16, kFp32), stored_in(kBf16, kFp8, kFp16, kBf16)}) {
    SCOPED_TRACE(fmt::format("exp_avg {}, exp_avg_sq {}, main {}, gradients {}", config::name(dtypes.exp_avg),
                             config::name(dtypes.exp_avg_sq), config::name(dtypes.main_parameter),
                             config::name(dtypes.main_gradient)));
    Toy toy(large_specs(), {}, {}, {}, at::kBFloat16, dtypes);
    Optimizer optimizer(adam(), *toy.buffers, {}, false);
    for (const Segment& s : optimizer.segments()) {
      EXPECT_EQ(s.states[0].scalar_type(), tensor::scalar_type(dtypes.exp_avg));
      EXPECT_EQ(s.states[1].scalar_type(), tensor::scalar_type(dtypes.exp_avg_sq));
      EXPECT_EQ(s.main.scalar_type(), tensor::scalar_type(dtypes.main_parameter));
    }
    for (int step = 1; step <= 4; ++step) {
      set_gradients(toy, step, 0.1 * step);
      check_step(optimizer, dtypes, step);
    }
  }
}

// fp32 parameters are updated in place.
TEST(StoredStates, OfFp32ParametersFollowTheDefinition) {
  config::Dtypes dtypes;
  dtypes.exp_avg = Dtype::kFloat8;
  dtypes.exp_avg_sq = Dtype::kBfloat16;
  Toy toy(large_specs(), {}, {}, {}, at::kFloat, dtypes);
  Optimizer optimizer(adam(), *toy.buffers, {}, false);
  for (int step = 1; step <= 3; ++step) {
    set_gradients(toy, step, 1);
    check_step(optimizer, dtypes, step);
  }
}

TEST(StoredStates, SkippedStepsKeepThem) {
  const config::Dtypes dtypes = stored_in(Dtype::kFloat8, Dtype::kFloat16, Dtype::kFloat16, Dtype::kBfloat16);
  Toy toy(large_specs(), {}, {}, {}, at::kBFloat16, dtypes);
  Optimizer optimizer(adam(), *toy.buffers, {}, false);
  set_gradients(toy, 1, 1);
  optimizer.step({.learning_rate = 0.01});
  const Values before = values_of(optimizer.segments()[0]);
  set_gradients(toy, 2, std::numeric_limits<double>::infinity());
  EXPECT_TRUE(optimizer.step({.learning_rate = 0.01}).skipped);
  const Values after = values_of(optimizer.segments()[0]);
  EXPECT_TRUE(at::equal(after.main, before.main));
  EXPECT_TRUE(at::equal(after.m, before.m));
  EXPECT_TRUE(at::equal(after.v, before.v));
}

/// Values of all parameters, joined from the shards of all ranks: those of `weight`, then those of `bias`.
struct Joined {
  std::mutex mutex;
  std::map<std::string, Values> values;

  void add(const Segment& s) {
    const std::lock_guard lock(mutex);
    const Values part = values_of(s);
    Values& all = values[s.parameter->spec.name];
    const std::int64_t n = s.parameter->value.numel();
    if (!all.main.defined())
      all = {at::zeros({n}, at::kDouble), at::zeros({n}, at::kDouble), at::zeros({n}, at::kDouble)};
    all.main.narrow(0, s.begin, part.main.numel()).copy_(part.main);
    all.m.narrow(0, s.begin, part.m.numel()).copy_(part.m);
    all.v.narrow(0, s.begin, part.v.numel()).copy_(part.v);
  }
};

/// Three steps with `replicas` data-parallel ranks, of which the first has the gradients.
void train(Joined& result, const config::Dtypes& dtypes, int replicas, layout::Sharding sharding) {
  comm::run_ranks(replicas, [&](comm::Communicators& ranks) {
    Toy toy(large_specs(), {}, ranks.world(), {.bucket_elements = 7000, .sharding = sharding}, at::kBFloat16,
            dtypes);
    Optimizer optimizer(adam(), *toy.buffers, ranks.world(), false);
    for (int step = 1; step <= 3; ++step) {
      set_gradients(toy, step, ranks.rank() == 0 ? 1 : 0);
      optimizer.step({.learning_rate = 0.01, .weight_decay = 0.1});
    }
    for (const Segment& s : optimizer.segments()) result.add(s);
  });
}

TEST(StoredStates, AreEqualInEveryDataParallelLayout) {
  const config::Dtypes dtypes =
      stored_in(Dtype::kBfloat16, Dtype::kBfloat16, Dtype::kFloat32, Dtype::kBfloat16);
  Joined whole;
  train(whole, dtypes, 1, layout::Sharding::kNone);
  ASSERT_EQ(whole.values.size(), 2U);
  for (const auto& [replicas, sharding] : {std::pair{2, layout::Sharding::kNone},
                                           {2, layout::Sharding::kOptimizer},
                                           {3, layout::Sharding::kOptimizer},
                                           {4, layout::Sharding::kOptimizer}}) {
    Joined split;
    train(split, dtypes, replicas, sharding);
    for (const auto& [name, expected] : whole.values) {
      const Values& got = split.values.at(name);
      EXPECT_TRUE(at::equal(got.main, expected.main)) << name << ", " << replicas;
      EXPECT_TRUE(at::equal(got.m, expected.m)) << name << ", " << replicas;
      EXPECT_TRUE(at::equal(got.v, expected.v)) << name << ", " << replicas;
    }
  }
}

}  // namespace
}  // namespace colonnade::optim
