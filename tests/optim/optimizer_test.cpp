// Adam and SGD against torch's formulas and Lion against its own in float64, and equality of steps in every
// layout.
#include "colonnade/optim/optimizer.h"

#include "optim/toys.h"

namespace colonnade::optim {
namespace {

using namespace toys;

void give_gradients(Toy& toy, int step, double factor = 1) {
  toy.buffers->start_step();
  for (Parameter* p : toy.list) p->accumulate((factor * gradient(p->spec, step)).to(test::device()));
  toy.buffers->finish();
}

void check_formula(const config::Optimizer& settings) {
  Toy toy(two_specs(), {}, {});
  Optimizer optimizer(settings, *toy.buffers, {}, false);
  Reference reference(settings, two_specs());
  for (int step = 1; step <= 5; ++step) {
    const double lr = 0.01 * step;
    const double decay = 0.1 / step;
    give_gradients(toy, step);
    const auto result = optimizer.step({.learning_rate = lr, .weight_decay = decay});
    const double norm = norm_of(two_specs(), step);
    EXPECT_NEAR(result.grad_norm, norm, 1e-12 * norm);
    const double clip = settings.clip_grad > 0 ? std::min(1.0, settings.clip_grad / (norm + 1e-6)) : 1.0;
    reference.step(step, lr, decay, clip);
    for (const Parameter* p : toy.list)
      EXPECT_LT(test::distance(p->value, reference.value(p->spec.name)), 1e-12)
          << p->spec.name << " step " << step;
  }
  EXPECT_EQ(optimizer.steps(), 5);
}

TEST(Optimizer, AdamEqualsTorchsFormula) { check_formula(adam()); }

TEST(Optimizer, SgdEqualsTorchsFormula) {
  for (const double momentum : {0.0, 0.9}) check_formula(sgd(momentum));
}

TEST(Optimizer, LionEqualsItsFormula) { check_formula(lion()); }

TEST(Optimizer, ClipsByTheGlobalNorm) {
  for (const double clip : {1.0, 5.0, 100.0}) {
    auto settings = sgd(0.9);  // Adam is nearly scale-invariant
    settings.clip_grad = clip;
    check_formula(settings);
  }
}

TEST(Optimizer, QkNormsDecayOnRequest) {
  for (const bool enabled : {false, true}) {
    auto settings = adam();
    settings.apply_wd_to_qk_layernorm = enabled;
    std::vector<layout::ParamSpec> specs, expected;
    for (const char* name : {"attention.q_layernorm.weight", "attention.k_layernorm.weight",
                             "attention.k_layernorm.bias", "final_layernorm.weight"}) {
      specs.push_back({.name = name, .shape = {6}, .weight_decay = false});
      expected.push_back(specs.back());
      expected.back().weight_decay = enabled && expected.size() <= 2;
    }
    Toy toy(specs, {}, {});
    Optimizer optimizer(settings, *toy.buffers, {}, false);
    Reference reference(settings, expected);
    give_gradients(toy, 1);
    optimizer.step({.learning_rate = 0.1, .weight_decay = 0.5});
    reference.step(1, 0.1, 0.5, 1);
    for (const Parameter* p : toy.list)
      EXPECT_LT(test::distance(p->value, reference.value(p->spec.name)), 1e-12) << p->spec.name << enabled;
  }
}

TEST(Optimizer, GradMultiplierAppliesBeforeNormAndClipping) {
  auto settings = sgd(0);
  settings.clip_grad = 1e9;
  Toy toy(two_specs(), {}, {});
  Optimizer optimizer(settings, *toy.buffers, {}, false);
  give_gradients(toy, 1, 1000);
  const auto result = optimizer.step({.learning_rate = 0.1, .grad_multiplier = 1e-3});
  EXPECT_NEAR(result.grad_norm, norm_of(two_specs(), 1), 1e-10);
  Reference reference(settings, two_specs());
  reference.step(1, 0.1, 0, 1);
  for (const Parameter* p : toy.list)
    EXPECT_LT(test::distance(p->value, reference.value(p->spec.name)), 1e-12);
}

TEST(Optimizer, CountsParamsNormAndZeros) {
  Toy toy(two_specs(), {}, {});
  Optimizer optimizer(adam(), *toy.buffers, {}, false);
  double squares = 0;
  for (const auto& spec : two_specs()) squares += test::full_value(spec).square().sum().item<double>();
  EXPECT_NEAR(optimizer.params_norm(), std::sqrt(squares), 1e-12);
  toy.buffers->start_step();
  toy.list[0]->accumulate(at::zeros({7, 5}, at::kDouble));
  toy.list[1]->accumulate(at::ones({9}, at::kDouble));
  toy.buffers->finish();
  EXPECT_EQ(optimizer.step({.learning_rate = 0.1, .count_zeros = true}).num_zeros, 35);
}

struct Layout {
  int tp, dp;
  bool sequence_parallel, distributed;
};

void check_layouts(config::Optimizer settings) {
  settings.clip_grad = 3.0;
  for (const Layout& layout :
       {Layout{1, 1, false, false}, Layout{2, 1, false, false}, Layout{2, 1, true, false},
        Layout{4, 1, true, false}, Layout{1, 2, false, false}, Layout{1, 3, false, true},
        Layout{2, 2, true, true}, Layout{4, 2, false, true}}) {
    SCOPED_TRACE(fmt::format("tp {} dp {} sp {} distributed {}", layout.tp, layout.dp,
                             layout.sequence_parallel, layout.distributed));
    config::Parallel parallel = test::tensor_parallel(layout.tp, layout.sequence_parallel);
    parallel.world_size = layout.tp * layout.dp;
    const auto specs = layer_specs(parallel);
    comm::run_ranks(parallel, [&](comm::Communicators& ranks) {
      const comm::Group tp = ranks.group({layout::Axis::kTp});
      const comm::Group data = ranks.group({layout::Axis::kDp, layout::Axis::kCp});
      Toy toy(specs, tp, data,
              {.bucket_elements = 500,
               .sharding = layout.distributed ? layout::Sharding::kOptimizer : layout::Sharding::kNone});
      Optimizer optimizer(settings, *toy.buffers, ranks.world(), false);
      Reference reference(settings, specs);
      for (int step = 1; step <= 3; ++step) {
        toy.buffers->start_step();
        for (Parameter* p : toy.list)
          p->accumulate(addend_of(*p, step, tp.rank(), tp.size(), data.rank(), data.size()));
        toy.buffers->finish();
        const double norm = norm_of(specs, step);
        EXPECT_NEAR(optimizer.step({.learning_rate = 0.01, .weight_decay = 0.1}).grad_norm, norm,
                    1e-11 * norm);
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
    });
  }
}

TEST(Optimizer, EveryLayoutTakesTheSameStepAndCountsElementsOnce) {
  check_layouts(adam());
  check_layouts(lion());
}

TEST(Optimizer, TiedTablesCountOnce) {
  config::Parallel parallel;
  parallel.world_size = parallel.pipeline_model_parallel_size = 2;
  comm::run_ranks(parallel, [&](comm::Communicators& ranks) {
    const int stage = ranks.coord(layout::Axis::kPp);
    Parameter table({.name = "table", .shape = {4, 3}, .held_by = layout::HeldBy::kTiedEmbeddings}, {},
                    at::dtype(at::kDouble));
    Parameter other({.name = fmt::format("other {}", stage), .shape = {10}}, {}, at::dtype(at::kDouble));
    test::randomize({&table, &other});
    table.is_tied_copy = stage == 1;
    data_parallel::GradBuffers buffers(
        {{&table, &other}},
        {.stages = {{layout::HeldBy::kTiedEmbeddings, ranks.pipeline_group({0, 1}, "embedding")}}},
        {.dtypes = test::kFloat64});
    Optimizer optimizer(adam(), buffers, ranks.world(), false);
    table.accumulate(at::full({4, 3}, stage == 0 ? 1.0 : 2.0, at::kDouble));  // sum 3
    other.accumulate(at::full({10}, 2.0, at::kDouble));
    buffers.finish();
    EXPECT_NEAR(optimizer.step({.learning_rate = 0.1}).grad_norm, std::sqrt(12 * 9.0 + 2 * 10 * 4.0), 1e-12);
    const Tensor others = table.value.detach().clone();
    ranks.world().broadcast(others, 0, "table").wait();
    EXPECT_TRUE(at::equal(table.value, others));
  });
}

TEST(Optimizer, ExpertsCountOnce) {
  config::Parallel parallel;
  parallel.world_size = 4;
  parallel.expert_model_parallel_size = 2;
  layout::ParamSpec spec{.name = "experts", .shape = {4, 3}, .param_group = layout::ParamGroup::kExpert};
  spec.sharded_dims = {{.dim = 0, .axis = layout::Axis::kEp, .segments = {{.size = 4}}}};
  for (const bool distributed : {false, true})
    comm::run_ranks(parallel, [&](comm::Communicators& ranks) {
      Parameter dense({.name = "dense", .shape = {30}}, {}, at::dtype(at::kDouble));
      Parameter experts(spec, ranks.mesh().position(ranks.rank()), at::dtype(at::kDouble));
      test::randomize({&dense, &experts});
      data_parallel::GradBuffers buffers(
          {{&dense, &experts}},
          {.data = ranks.group({layout::Axis::kDp}), .expert_data = ranks.group({layout::Axis::kEdp})},
          {.dtypes = test::kFloat64,
           .sharding = distributed ? layout::Sharding::kOptimizer : layout::Sharding::kNone});
      Optimizer optimizer(adam(), buffers, ranks.world(), false);
      for (Parameter* p : {&dense, &experts}) p->accumulate(at::ones_like(p->value));
      buffers.finish();
      // Four replicas of the dense part, two of each expert.
      EXPECT_NEAR(optimizer.step({.learning_rate = 0.1}).grad_norm, std::sqrt(30 * 16 + 12 * 4), 1e-12);
      const Tensor others = experts.value.detach().clone();
      ranks.group({layout::Axis::kEdp}).broadcast(others, 0, "experts").wait();
      EXPECT_TRUE(at::equal(experts.value, others));
    });
}

TEST(Optimizer, SupportsStagesWithoutParameters) {
  config::Parallel parallel;
  parallel.world_size = 4;
  parallel.pipeline_model_parallel_size = 2;
  for (const bool distributed : {false, true})
    comm::run_ranks(parallel, [&](comm::Communicators& ranks) {
      const bool empty = ranks.coord(layout::Axis::kPp) == 1;
      const auto specs = empty ? std::vector<layout::ParamSpec>{} : two_specs();
      Toy toy(specs, {}, ranks.group({layout::Axis::kDp}),
              {.sharding = distributed ? layout::Sharding::kOptimizer : layout::Sharding::kNone,
               .device = test::device()});
      Optimizer optimizer(adam(), *toy.buffers, ranks.world(), false);
      give_gradients(toy, 1, 0.5);  // two replicas
      const auto result = optimizer.step({.learning_rate = 0.01, .count_zeros = true});
      EXPECT_NEAR(result.grad_norm, norm_of(two_specs(), 1), 1e-12 * result.grad_norm);
      EXPECT_GT(optimizer.params_norm(), 0);
      EXPECT_EQ(toy.buffers->params().numel() == 0, empty);
    });
}

TEST(Optimizer, SegmentsHaveTheDtypesOfTheirRoles) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    Toy toy(two_specs(), {}, {}, {}, type);
    Optimizer optimizer(adam(), *toy.buffers, {}, false);
    const at::ScalarType wide = type == at::kDouble ? at::kDouble : at::kFloat;
    for (const Segment& s : optimizer.segments()) {
      EXPECT_EQ(s.model.scalar_type(), type);
      EXPECT_EQ(s.grad.scalar_type(), wide);
      EXPECT_EQ(s.main.scalar_type(), wide);
      EXPECT_EQ(s.has_main_copy(), type != wide);
      ASSERT_EQ(s.states.size(), 2U);
      for (const Tensor& state : s.states) EXPECT_EQ(state.scalar_type(), wide);
    }
  }
}

TEST(Optimizer, DynamicLossScaleSkipsAndHalves) {
  config::Optimizer settings = adam();
  settings.initial_loss_scale = 1024;
  settings.loss_scale_window = 2;
  settings.hysteresis = 2;
  Toy toy(two_specs(), {}, {}, {}, at::kHalf);
  Optimizer optimizer(settings, *toy.buffers, {}, /*fp16=*/true);
  const auto step = [&](double factor, int number) {
    give_gradients(toy, number, factor);
    return optimizer.step({.learning_rate = 0.01});
  };
  const double infinity = std::numeric_limits<double>::infinity();
  const Tensor before = toy.list[0]->value.detach().clone();
  EXPECT_TRUE(step(infinity, 1).skipped);
  EXPECT_EQ(optimizer.loss_scale().scale, 1024);  // tolerated once
  EXPECT_TRUE(step(infinity, 1).skipped);
  EXPECT_EQ(optimizer.loss_scale().scale, 512);
  EXPECT_TRUE(at::equal(toy.list[0]->value, before));
  EXPECT_EQ(optimizer.steps(), 0);
  const auto result = step(512, 1);
  EXPECT_FALSE(result.skipped);
  EXPECT_NEAR(result.grad_norm, norm_of(two_specs(), 1), 1e-5);
  EXPECT_FALSE(step(512, 2).skipped);
  EXPECT_EQ(optimizer.loss_scale().scale, 1024);  // two clean steps
  EXPECT_EQ(optimizer.steps(), 2);
  Reference reference(settings, two_specs());
  reference.step(1, 0.01, 0, 1);
  reference.step(2, 0.01, 0, 1);
  EXPECT_LT(test::distance(toy.list[0]->value, reference.value("weight")), 2e-3);
}

TEST(Optimizer, SkipsOnAllRanksWhenOneOverflows) {
  config::Parallel parallel = test::tensor_parallel(2, false);
  const auto specs = layer_specs(parallel);
  comm::run_ranks(parallel, [&](comm::Communicators& ranks) {
    const comm::Group tp = ranks.group({layout::Axis::kTp});
    Toy toy(specs, tp, {}, {}, at::kHalf);
    Optimizer optimizer(adam(), *toy.buffers, ranks.world(), true);
    toy.buffers->start_step();
    for (Parameter* p : toy.list) p->accumulate(at::ones_like(p->value));
    if (tp.rank() == 1) toy.list.front()->main_grad.view(-1)[0] = std::numeric_limits<float>::infinity();
    toy.buffers->finish();
    EXPECT_TRUE(optimizer.step({.learning_rate = 0.1}).skipped);
  });
}

TEST(Optimizer, MainParamsKeepWhatBfloat16Rounds) {
  Toy toy(two_specs(), {}, {}, {}, at::kBFloat16);
  Optimizer optimizer(sgd(0), *toy.buffers, {}, false);
  const Tensor start = toy.list[0]->value.detach().to(at::kFloat).clone();
  for (int step = 0; step < 100; ++step) {  // each step is far below bfloat16's resolution
    toy.buffers->start_step();
    for (Parameter* p : toy.list) p->accumulate(at::ones_like(p->value));
    toy.buffers->finish();
    optimizer.step({.learning_rate = 1e-5});
  }
  for (const Segment& s : optimizer.segments()) {
    if (s.parameter != toy.list[0]) continue;
    EXPECT_EQ(s.main.scalar_type(), at::kFloat);
    EXPECT_TRUE(at::allclose(s.main, start.view(-1) - 1e-3, 1e-5, 1e-6));
    EXPECT_TRUE(at::equal(s.model, s.main.to(at::kBFloat16)));
  }
}

// Also in a skipped step; rows of other parameters and frozen ones keep their values.
TEST(Optimizer, ScalesRowsOfMainAndModelValues) {
  const std::vector<double> rows{1, 0.5, 0.5, 0.25, 1, 1, 0.7};
  for (const double gradient : {0.0, std::numeric_limits<double>::infinity()})
    for (const bool distributed : {false, true})
      comm::run_ranks(2, [&](comm::Communicators& ranks) {
        Toy toy(two_specs(), {}, ranks.world(),
                {.sharding = distributed ? layout::Sharding::kOptimizer : layout::Sharding::kNone},
                at::kBFloat16);
        Optimizer optimizer(sgd(0), *toy.buffers, ranks.world(), false);
        const Tensor weight = toy.list[0]->value.detach().to(at::kFloat), bias = toy.list[1]->value.clone();
        const Tensor scaled = weight * at::tensor(rows, at::kFloat).to(test::device()).view({7, 1});
        toy.buffers->start_step();
        for (Parameter* p : toy.list) p->accumulate(at::full_like(p->value, gradient));
        toy.buffers->finish();
        optimizer.step({.learning_rate = 0.1, .row_scales = {{"weight", rows}, {"other", {}}}});
        EXPECT_TRUE(at::equal(toy.list[0]->value, scaled.to(at::kBFloat16)));
        EXPECT_TRUE(at::equal(toy.list[1]->value, bias));
        for (const Segment& s : optimizer.segments()) {
          if (s.parameter != toy.list[0]) continue;
          EXPECT_TRUE(at::equal(s.main, scaled.view(-1).narrow(0, s.begin, s.main.numel())));
        }
      });
}

TEST(Optimizer, AdoptsValuesFromEitherSide) {
  for (const bool distributed : {false, true})
    comm::run_ranks(2, [&](comm::Communicators& ranks) {
      Toy toy(two_specs(), {}, ranks.world(),
              {.sharding = distributed ? layout::Sharding::kOptimizer : layout::Sharding::kNone},
              at::kBFloat16);
      Optimizer optimizer(adam(), *toy.buffers, {}, false);
      for (Segment& s : optimizer.segments()) s.main.fill_(0.3);
      optimizer.adopt_main();
      for (const Parameter* p : toy.list) EXPECT_TRUE(at::equal(p->value, at::full_like(p->value, 0.3)));
      for (Parameter* p : toy.list) p->value.data().fill_(0.7);
      optimizer.adopt_parameters();
      for (const Segment& s : optimizer.segments()) EXPECT_TRUE(at::equal(s.main, s.model.to(at::kFloat)));
    });
}

TEST(Optimizer, SkipsNonFiniteGradientsWithAnyLossScale) {
  config::Optimizer constant = adam();
  constant.loss_scale = 8;
  for (const config::Optimizer& settings : {adam(), constant}) {
    Toy toy(two_specs(), {}, {});
    Optimizer optimizer(settings, *toy.buffers, {}, false);
    const double scale = optimizer.loss_scale().scale;
    const Tensor before = toy.list[0]->value.detach().clone();
    give_gradients(toy, 1, std::numeric_limits<double>::quiet_NaN());
    EXPECT_TRUE(optimizer.step({.learning_rate = 0.1}).skipped);
    EXPECT_TRUE(at::equal(toy.list[0]->value, before));
    EXPECT_EQ(optimizer.steps(), 0);
    give_gradients(toy, 1, scale);
    EXPECT_FALSE(optimizer.step({.learning_rate = 0.1}).skipped);
    EXPECT_FALSE(at::equal(toy.list[0]->value, before));
    EXPECT_EQ(optimizer.loss_scale().scale, scale);
  }
}

}  // namespace
}  // namespace colonnade::optim
