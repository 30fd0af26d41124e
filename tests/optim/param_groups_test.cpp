// Groups of parameters with their own optimizer, multipliers or none, against an unsplit reference in
// float64.
#include <gmock/gmock.h>

#include "colonnade/base/error.h"
#include "colonnade/optim/optimizer.h"
#include "optim/toys.h"

namespace colonnade::optim {
namespace {

using namespace toys;
using layout::OptimizerGroup;
using testing::AllOf;
using testing::HasSubstr;

/// Overlapping patterns: the second and the fourth match parameters of earlier ones too.
std::vector<OptimizerGroup> mixed_groups() {
  return {{.names = "*.mlp.linear_fc2.*", .frozen = true},
          {.names = "*.mlp.*", .optimizer = config::OptimizerKind::kSgd, .lr_multiplier = 0.5},
          {.names = "embedding.*", .lr_multiplier = 2, .weight_decay_multiplier = 0.5, .eps_multiplier = 1e7},
          {.property = layout::ParamProperty::kOneDimensional, .weight_decay_multiplier = 3}};
}

/// The same by hand.
OptimizerGroup expected_group(const layout::ParamSpec& spec) {
  const std::string& name = spec.name;
  if (name.find("linear_fc2") != std::string::npos) return {.frozen = true};
  if (name.find("linear_fc1") != std::string::npos)
    return {.optimizer = config::OptimizerKind::kSgd, .lr_multiplier = 0.5};
  if (name.starts_with("embedding"))
    return {.lr_multiplier = 2, .weight_decay_multiplier = 0.5, .eps_multiplier = 1e7};
  if (name.ends_with(".bias") || name.find("layernorm") != std::string::npos)
    return {.weight_decay_multiplier = 3};
  return {};
}

struct SplitLayout {
  int tp, dp;
  layout::Sharding sharding;
};

/// Three steps of mixed_groups() in a layout equal those of the reference.
void check_steps(comm::Communicators& ranks, const SplitLayout& split,
                 const std::vector<layout::ParamSpec>& specs) {
  auto settings = adam();
  settings.clip_grad = 3.0;
  const comm::Group tp = ranks.group({layout::Axis::kTp});
  const comm::Group data = ranks.group({layout::Axis::kDp, layout::Axis::kCp});
  Toy toy(specs, tp, data, {.bucket_elements = 500, .sharding = split.sharding});
  Optimizer optimizer(settings, *toy.buffers, ranks.world(), false, mixed_groups());
  Reference reference(settings, specs, expected_group);
  std::vector<layout::ParamSpec> trained = specs;
  std::erase_if(trained, [](const auto& spec) { return expected_group(spec).frozen; });
  ASSERT_EQ(trained.size() + 2, specs.size());
  for (int step = 1; step <= 3; ++step) {
    toy.buffers->start_step();
    for (Parameter* p : toy.list)
      p->accumulate(addend_of(*p, step, tp.rank(), tp.size(), data.rank(), data.size()));
    toy.buffers->finish();
    const double norm = norm_of(trained, step);
    EXPECT_NEAR(optimizer.step({.learning_rate = 0.01, .weight_decay = 0.1}).grad_norm, norm, 1e-11 * norm);
    reference.step(step, 0.01, 0.1, 3.0 / (norm + 1e-6));
    double squares = 0;
    for (const Parameter* p : toy.list) {
      const Tensor& whole = reference.value(p->spec.name);
      squares += whole.square().sum().item<double>();
      EXPECT_LT(test::distance(p->value, test::local_shard(*p, whole)), 1e-11)
          << p->spec.name << " step " << step;
    }
    EXPECT_NEAR(optimizer.params_norm(), std::sqrt(squares), 1e-10);
  }
}

TEST(ParamGroups, EveryLayoutTakesTheStepOfTheUnsplitReference) {
  using layout::Sharding;
  for (const SplitLayout& split :
       {SplitLayout{1, 1, Sharding::kNone}, SplitLayout{1, 2, Sharding::kNone},
        SplitLayout{1, 2, Sharding::kOptimizer}, SplitLayout{1, 4, Sharding::kOptimizer},
        SplitLayout{2, 2, Sharding::kOptimizer}}) {
    SCOPED_TRACE(fmt::format("tp {} dp {} distributed {}", split.tp, split.dp,
                             split.sharding == Sharding::kOptimizer));
    config::Parallel parallel = test::tensor_parallel(split.tp, /*sequence_parallel=*/split.tp > 1);
    parallel.world_size = split.tp * split.dp;
    const auto specs = layer_specs(parallel);
    comm::run_ranks(parallel, [&](comm::Communicators& ranks) { check_steps(ranks, split, specs); });
  }
}

TEST(ParamGroups, SegmentsHaveTheStatesOfTheirRule) {
  const auto specs = layer_specs({});
  Toy toy(specs, {}, {});
  Optimizer optimizer(adam(), *toy.buffers, {}, false, mixed_groups());
  EXPECT_EQ(optimizer.segments().size() + 2, specs.size());
  for (const Segment& s : optimizer.segments()) {
    const std::string& name = s.parameter->spec.name;
    const OptimizerGroup group = expected_group(s.parameter->spec);
    EXPECT_FALSE(group.frozen) << name;
    EXPECT_EQ(s.states.size(), group.optimizer ? 1U : 2U) << name;
    ASSERT_EQ(s.states.size(), s.rule->states().size()) << name;
    for (const Tensor& state : s.states) EXPECT_TRUE(at::equal(state, at::zeros_like(s.main))) << name;
  }
}

TEST(ParamGroups, FrozenParametersKeepTheirBitsAndDoNotCount) {
  Toy toy(two_specs(), {}, {}, {}, at::kBFloat16);
  Optimizer optimizer(adam(), *toy.buffers, {}, false, {{.names = "weight", .frozen = true}});
  const Tensor weight = toy.list[0]->value.detach().clone(), bias = toy.list[1]->value.detach().clone();
  ASSERT_EQ(optimizer.segments().size(), 1U);
  EXPECT_EQ(optimizer.segments()[0].parameter, toy.list[1]);
  toy.buffers->start_step();
  toy.list[0]->accumulate(at::full_like(weight, std::numeric_limits<double>::infinity()));
  toy.list[1]->accumulate(at::zeros_like(bias));
  toy.list[1]->main_grad.view(-1)[0] = 2;
  toy.buffers->finish();
  const StepResult result = optimizer.step({.learning_rate = 0.1, .weight_decay = 0.1, .count_zeros = true});
  EXPECT_FALSE(result.skipped);
  EXPECT_EQ(result.grad_norm, 2);
  EXPECT_EQ(result.num_zeros, 8);
  EXPECT_TRUE(at::equal(toy.list[0]->value, weight));
  EXPECT_FALSE(at::equal(toy.list[1]->value, bias));
  optimizer.adopt_main();
  EXPECT_TRUE(at::equal(toy.list[0]->value, weight));
  const double squares = weight.to(at::kDouble).square().sum().item<double>() +
                         toy.list[1]->value.to(at::kDouble).square().sum().item<double>();
  EXPECT_NEAR(optimizer.params_norm(), std::sqrt(squares), 1e-5);
}

TEST(ParamGroups, UnmatchedPatternIsAnErrorOnAllRanks) {
  config::Parallel parallel;
  parallel.world_size = parallel.pipeline_model_parallel_size = 2;
  comm::run_ranks(parallel, [&](comm::Communicators& ranks) {
    const int stage = ranks.coord(layout::Axis::kPp);
    Toy toy({{.name = fmt::format("stage{}.weight", stage), .shape = {4, 3}}}, {}, {});
    EXPECT_NO_THROW(Optimizer(adam(), *toy.buffers, ranks.world(), false, {{.names = "stage1.*"}}));
    try {
      const Optimizer unmatched(adam(), *toy.buffers, ranks.world(), false,
                                {{.names = "stage0.*"}, {.names = "vision.*", .frozen = true}});
      ADD_FAILURE() << "no error";
    } catch (const ConfigError& e) {
      EXPECT_THAT(std::string(e.what()),
                  AllOf(HasSubstr("pattern of optimizer group vision.* must match a parameter of the model"),
                        HasSubstr("`*` stands for any text")));
    }
  });
}

}  // namespace
}  // namespace colonnade::optim
