// Muon against its definition by singular values in float64, unsplit and in every layout, and against
// torch.optim.Muon.
#include "colonnade/optim/muon.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "colonnade/optim/optimizer.h"
#include "optim/singular_values.h"
#include "optim/toys.h"
#include "support/vectors.h"

namespace colonnade::optim {
namespace {

using namespace toys;
using config::MuonCoefficients;

config::Optimizer muon() {
  config::Optimizer settings = adam();
  settings.optimizer = config::OptimizerKind::kMuon;
  return settings;
}

TEST(Muon, ScalesFollowTheirFormulas) {
  using config::MuonScale;
  EXPECT_EQ(muon_scale(MuonScale::kSpectral, 4, 9), 3);
  EXPECT_EQ(muon_scale(MuonScale::kSpectral, 16, 9), 4);
  EXPECT_EQ(muon_scale(MuonScale::kUnitRmsNorm, 4, 16), 0.5);
  EXPECT_EQ(muon_scale(MuonScale::kShapeScaling, 4, 16), 1);
  EXPECT_EQ(muon_scale(MuonScale::kShapeScaling, 16, 4), 2);
}

/// Row ranges that are orthogonalized by themselves, and the stack of experts, by hand.
std::vector<Tensor> matrices_of(const layout::ParamSpec& spec, const Tensor& value, const config::Muon& m) {
  std::vector<Tensor> found;
  const auto add_rows = [&](const Tensor& matrix, std::vector<std::int64_t> sizes) {
    for (const Tensor& rows : matrix.split_with_sizes(sizes, 0)) found.push_back(rows);
  };
  if (value.dim() == 3) {
    for (const Tensor& expert : value.unbind(0)) {
      const std::int64_t half = expert.size(0) / 2;
      if (spec.name.ends_with("linear_fc1.weight") && m.split_gate_up)
        add_rows(expert, {half, half});
      else
        found.push_back(expert);
    }
  } else if (spec.name.ends_with("linear_qkv.weight") && m.split_qkv) {
    add_rows(value, {32, 8, 8});  // 8 heads and 2 groups of 4
  } else {
    found.push_back(value);
  }
  return found;
}

bool is_muons(const layout::ParamSpec& spec) {
  return (spec.name.ends_with(".weight") && spec.name.find("norm") == std::string::npos &&
          spec.name.find("word_embeddings") == std::string::npos);
}

/// One step of the definition on whole tensors.
void reference_step(const config::Muon& m, const layout::ParamSpec& spec, Tensor& value, Tensor& buffer,
                    const Tensor& g, double lr, double decay) {
  buffer = m.momentum * buffer + (1 - m.momentum) * g;
  const Tensor u = m.nesterov ? (1 - m.momentum) * g + m.momentum * buffer : buffer;
  std::vector<Tensor> updates;
  for (const Tensor& matrix : matrices_of(spec, u, m))
    updates.push_back(by_singular_values(matrix, m.coefficients, m.num_ns_steps) * m.extra_scale_factor *
                      muon_scale(m.scale_mode, matrix.size(0), matrix.size(1)));
  const Tensor update = at::cat(updates, 0).view(value.sizes());
  value = value * (1 - lr * decay) - lr * update;
}

struct MuonLayout {
  const char* name;
  int world, tp, ep, etp, instances;
  layout::Sharding sharding;
};

/// The layer of toys.h, and two stacks of experts.
std::vector<layout::ParamSpec> muon_specs(const config::Parallel& parallel) {
  std::vector<layout::ParamSpec> specs = layer_specs(parallel);
  const std::vector<layout::DimSegment> gate_up{{.role = "gate", .size = 4}, {.role = "up", .size = 4}};
  const layout::ShardedDim experts{.dim = 0, .axis = layout::Axis::kEp, .segments = {{.size = 4}}};
  specs.push_back({.name = "decoder.layers.0.mlp.experts.linear_fc1.weight",
                   .shape = {4, 8, 6},
                   .sharded_dims = {experts, {.dim = 1, .axis = layout::Axis::kEtp, .segments = gate_up}},
                   .param_group = layout::ParamGroup::kExpert});
  specs.push_back(
      {.name = "decoder.layers.0.mlp.experts.linear_fc2.weight",
       .shape = {4, 6, 4},
       .sharded_dims = {experts, {.dim = 2, .axis = layout::Axis::kEtp, .segments = {{.size = 4}}}},
       .param_group = layout::ParamGroup::kExpert});
  return specs;
}

/// This rank's addend of a full gradient; toys::addend_of for dense parameters.
Tensor muon_addend(const Parameter& p, int step, const data_parallel::Groups& groups) {
  if (p.spec.param_group == layout::ParamGroup::kDense) {
    const int inner = groups.data.inner.size();
    return addend_of(p, step, groups.tensor.rank(), groups.tensor.size(),
                     groups.data.outer.rank() * inner + groups.data.inner.rank(),
                     inner * groups.data.outer.size());
  }
  return test::local_shard(p, gradient(p.spec, step)) /
         (groups.expert_data.inner.size() * groups.expert_data.outer.size());
}

/// Values of all parameters by the definition: Adam's for those that Muon does not update.
class MuonReference {
 public:
  MuonReference(const config::Muon& settings, const std::vector<layout::ParamSpec>& specs)
      : settings_(settings), scalar_(adam(), specs) {
    for (const auto& spec : specs) {
      if (!is_muons(spec)) continue;
      const Tensor value = test::full_value(spec);
      matrices_[spec.name] = {spec, value, at::zeros_like(value)};
    }
  }
  void step(int number, double lr, double decay) {
    scalar_.step(number, lr, decay, 1);
    for (auto& [name, m] : matrices_)
      reference_step(settings_, m.spec, m.value, m.buffer, gradient(m.spec, number), lr, decay);
  }
  [[nodiscard]] const Tensor& value(const std::string& name) const {
    const auto found = matrices_.find(name);
    return found == matrices_.end() ? scalar_.value(name) : found->second.value;
  }

 private:
  struct Matrices {
    layout::ParamSpec spec;
    Tensor value, buffer;
  };
  config::Muon settings_;
  Reference scalar_;
  std::map<std::string, Matrices> matrices_;
};

/// Replicas in `instances` equal groups.
data_parallel::ReplicaGroups replicas(comm::Communicators& ranks, layout::AxisSet axes, int instances) {
  const auto [inner, outer] = ranks.inner_outer_groups(axes, ranks.mesh().size(axes) / instances);
  return {inner, outer};
}

void check_rank(const MuonLayout& split, const config::Optimizer& settings,
                const std::vector<layout::ParamSpec>& specs, comm::Communicators& ranks) {
  using layout::Axis;
  const data_parallel::Groups groups{.data = replicas(ranks, {Axis::kDp, Axis::kCp}, split.instances),
                                     .tensor = ranks.group({Axis::kTp}),
                                     .expert_data = replicas(ranks, {Axis::kEdp}, split.instances)};
  StageRanks stage{ranks.group({Axis::kTp, Axis::kCp, Axis::kDp}), {}};
  for (int rank = 0; rank < split.world; ++rank) stage.positions.push_back(ranks.mesh().position(rank));
  std::vector<std::unique_ptr<Parameter>> owned;
  std::vector<Parameter*> list;
  for (const auto& spec : specs) {
    owned.push_back(
        std::make_unique<Parameter>(spec, ranks.mesh().position(ranks.rank()), test::options(at::kDouble)));
    list.push_back(owned.back().get());
  }
  test::randomize(list);
  data_parallel::GradBuffers buffers(
      {list}, groups,
      {.dtypes = test::dtypes(at::kDouble), .bucket_elements = 300, .sharding = split.sharding});
  Optimizer optimizer(settings, buffers, ranks.world(), false, {}, stage);
  MuonReference reference(settings.muon, specs);
  for (int step = 1; step <= 3; ++step) {
    buffers.start_step();
    for (Parameter* p : list) p->accumulate(muon_addend(*p, step, groups));
    buffers.finish();
    optimizer.step({.learning_rate = 0.01, .weight_decay = 0.1});
    reference.step(step, 0.01, 0.1);
    for (const Parameter* p : list)
      EXPECT_LT(test::distance(p->value, test::local_shard(*p, reference.value(p->spec.name))), 1e-9)
          << split.name << " " << p->spec.name << " step " << step;
  }
}

void check_layout(const MuonLayout& split, const config::Optimizer& settings) {
  config::Parallel parallel = test::tensor_parallel(split.tp, /*sequence_parallel=*/split.tp > 1);
  parallel.world_size = split.world;
  parallel.expert_model_parallel_size = split.ep;
  parallel.expert_tensor_parallel_size = split.etp;
  const auto specs = muon_specs(parallel);
  comm::run_ranks(parallel, [&](comm::Communicators& ranks) { check_rank(split, settings, specs, ranks); });
}

TEST(Muon, EveryLayoutTakesTheStepOfTheUnsplitReference) {
  using layout::Sharding;
  config::Optimizer nesterov = muon();
  nesterov.muon = {.momentum = 0.95,
                   .nesterov = true,
                   .split_qkv = false,
                   .split_gate_up = true,
                   .scale_mode = config::MuonScale::kShapeScaling,
                   .extra_scale_factor = 0.2,
                   .coefficients = MuonCoefficients::kSimple,
                   .num_ns_steps = 3};
  for (const MuonLayout& split : {MuonLayout{"one rank", 1, 1, 1, 1, 1, Sharding::kNone},
                                  MuonLayout{"replicas", 2, 1, 1, 1, 1, Sharding::kNone},
                                  MuonLayout{"distributed", 4, 1, 2, 1, 1, Sharding::kOptimizer},
                                  MuonLayout{"instances", 4, 1, 1, 1, 2, Sharding::kOptimizer},
                                  MuonLayout{"tensor ranks", 2, 2, 1, 2, 1, Sharding::kNone},
                                  MuonLayout{"shared heads", 4, 4, 1, 4, 1, Sharding::kNone},
                                  MuonLayout{"tensor and data ranks", 4, 2, 2, 2, 1, Sharding::kOptimizer}}) {
    check_layout(split, muon());
    check_layout(split, nesterov);
  }
}

// torch.optim.Muon computes the Newton-Schulz steps in bf16, which the tolerance covers.
TEST(Muon, TakesTheStepsOfTorch) {
  std::ifstream file(test::vectors() + "/muon/torch_muon.json");
  ASSERT_TRUE(file) << "missing vectors";
  const auto recorded = nlohmann::json::parse(file);
  const auto& s = recorded.at("settings");
  for (const auto& one : recorded.at("cases")) {
    const auto shape = one.at("shape").get<std::vector<std::int64_t>>();
    const auto tensor = [&](const nlohmann::json& values) {
      return at::tensor(values.get<std::vector<double>>(), at::kDouble).view(shape);
    };
    config::Optimizer settings = muon();
    settings.muon = {.momentum = s.at("momentum"),
                     .nesterov = one.at("nesterov"),
                     .scale_mode = config::MuonScale::kShapeScaling,
                     .coefficients = MuonCoefficients::kSimple,
                     .num_ns_steps = s.at("ns_steps")};
    Toy toy({{.name = "weight", .shape = shape}}, {}, {});
    toy.list[0]->value.detach().copy_(tensor(one.at("before")));
    Optimizer optimizer(settings, *toy.buffers, {}, false);
    for (const auto& grad : one.at("grads")) {
      toy.buffers->start_step();
      toy.list[0]->accumulate(tensor(grad));
      toy.buffers->finish();
      optimizer.step({.learning_rate = s.at("lr"), .weight_decay = s.at("weight_decay")});
    }
    const Tensor after = tensor(one.at("after")), moved = after - tensor(one.at("before"));
    const double error = (toy.list[0]->value - after).norm().item<double>();
    // Small singular values of a square matrix follow the rounding of each step.
    const double bound = shape[0] == shape[1] ? 0.1 : 0.02;
    EXPECT_LT(error, bound * moved.norm().item<double>()) << one.at("shape") << one.at("nesterov");
  }
}

}  // namespace
}  // namespace colonnade::optim
