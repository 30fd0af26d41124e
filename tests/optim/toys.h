// Parameters, gradients and a reference for tests of optimizer steps.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/data_parallel/grad_buffers.h"
#include "colonnade/layout/optimizer_groups.h"
#include "colonnade/layout/params/gpt.h"
#include "support/device.h"
#include "support/dtypes.h"
#include "support/split.h"

namespace colonnade::optim::toys {

using at::Tensor;
using tensor::Parameter;

struct Toy {
  std::vector<std::unique_ptr<Parameter>> all;
  std::vector<Parameter*> list;
  std::unique_ptr<data_parallel::GradBuffers> buffers;

  Toy(const std::vector<layout::ParamSpec>& specs, const comm::Group& tp, const comm::Group& data,
      data_parallel::Options options = {}, at::ScalarType type = at::kDouble,
      std::optional<config::Dtypes> dtypes = std::nullopt) {
    for (const auto& spec : specs) {
      all.push_back(std::make_unique<Parameter>(
          spec, layout::Position::on(layout::Axis::kTp, tp.rank(), tp.size()), test::options(type)));
      list.push_back(all.back().get());
    }
    test::randomize(list);
    options.dtypes = dtypes.value_or(test::dtypes(type));
    buffers = std::make_unique<data_parallel::GradBuffers>(std::vector<std::vector<Parameter*>>{list},
                                                           data_parallel::Groups{.data = data, .tensor = tp},
                                                           options);
  }
};

inline std::vector<layout::ParamSpec> two_specs() {
  return {{.name = "weight", .shape = {7, 5}}, {.name = "bias", .shape = {9}, .weight_decay = false}};
}

inline Tensor gradient(const layout::ParamSpec& spec, int step) {
  return test::named_random(fmt::format("{} step {}", spec.name, step), spec.shape);
}

inline double norm_of(const std::vector<layout::ParamSpec>& specs, int step) {
  double squares = 0;
  for (const auto& spec : specs) squares += gradient(spec, step).square().sum().item<double>();
  return std::sqrt(squares);
}

/// Group of each parameter, by hand.
using GroupOf = std::function<layout::OptimizerGroup(const layout::ParamSpec&)>;

/// Without overrides.
inline layout::OptimizerGroup decay_of(const layout::ParamSpec& spec) {
  return {.weight_decay_multiplier = spec.weight_decay ? 1.0 : 0.0};
}

/// torch.optim.AdamW (decoupled decay), torch.optim.SGD or Lion on whole tensors.
class Reference {
 public:
  Reference(config::Optimizer settings, const std::vector<layout::ParamSpec>& specs,
            const GroupOf& group_of = decay_of)
      : o_(settings) {
    for (const auto& spec : specs)
      states_[spec.name] = {test::full_value(spec), {}, {}, spec, group_of(spec)};
  }

  void step(int number, double lr, double decay, double grad_factor) {
    for (auto& [name, s] : states_) {
      if (s.group.frozen) continue;
      const Tensor g = gradient(s.spec, number) * grad_factor;
      const double rate = s.group.lr_multiplier * lr, wd = s.group.weight_decay_multiplier * decay;
      switch (s.group.optimizer.value_or(o_.optimizer)) {
        case config::OptimizerKind::kAdam:
          adam(s, g, number, rate, wd, s.group.eps_multiplier * o_.adam_eps);
          break;
        case config::OptimizerKind::kSgd:
          sgd(s, g, number, rate, wd);
          break;
        case config::OptimizerKind::kLion:
          lion(s, g, number, rate, wd);
          break;
        case config::OptimizerKind::kMuon:  // muon_test.cpp has its reference
          ADD_FAILURE() << name;
          break;
      }
    }
  }
  [[nodiscard]] const Tensor& value(const std::string& name) const { return states_.at(name).value; }

 private:
  struct State {
    Tensor value, m, v;
    layout::ParamSpec spec;
    layout::OptimizerGroup group;
  };
  void adam(State& s, const Tensor& g, int t, double lr, double wd, double eps) const {
    s.m = t == 1 ? (1 - o_.adam_beta1) * g : o_.adam_beta1 * s.m + (1 - o_.adam_beta1) * g;
    s.v = t == 1 ? (1 - o_.adam_beta2) * g * g : o_.adam_beta2 * s.v + (1 - o_.adam_beta2) * g * g;
    const Tensor m_hat = s.m / (1 - std::pow(o_.adam_beta1, t));
    const Tensor v_hat = s.v / (1 - std::pow(o_.adam_beta2, t));
    s.value = s.value * (1 - lr * wd) - lr * m_hat / (v_hat.sqrt() + eps);
  }
  void sgd(State& s, const Tensor& g, int t, double lr, double wd) const {
    const Tensor d = g + wd * s.value;
    s.m = t == 1 ? d : o_.sgd_momentum * s.m + d;
    s.value = s.value - lr * s.m;
  }
  void lion(State& s, const Tensor& g, int t, double lr, double wd) const {
    if (t == 1) s.m = at::zeros_like(g);
    const Tensor sign = (o_.lion_beta1 * s.m + (1 - o_.lion_beta1) * g).sign();
    s.value = s.value - lr * (sign + wd * s.value);
    s.m = o_.lion_beta2 * s.m + (1 - o_.lion_beta2) * g;
  }

  config::Optimizer o_;
  std::map<std::string, State> states_;
};

inline config::Optimizer adam() { return {.clip_grad = 0, .adam_beta2 = 0.95}; }
inline config::Optimizer sgd(double momentum) {
  return {.optimizer = config::OptimizerKind::kSgd, .clip_grad = 0, .sgd_momentum = momentum};
}
inline config::Optimizer lion() {
  return {.optimizer = config::OptimizerKind::kLion, .clip_grad = 0, .lion_beta1 = 0.8, .lion_beta2 = 0.7};
}

/// Parameters of all kinds: fused rows with shared key-value heads, columns, replicated, partial, padded.
inline std::vector<layout::ParamSpec> layer_specs(const config::Parallel& parallel) {
  config::Model m;
  m.num_layers = 1;
  m.hidden_size = 12;
  m.ffn_hidden_size = 16;
  m.num_attention_heads = 8;
  m.num_query_groups = 2;
  m.kv_channels = 4;
  m.vocab_size = 37;
  m.max_position_embeddings = 6;
  m.make_vocab_size_divisible_by = 1;
  std::vector<layout::ParamSpec> specs;
  const auto add = [&](const layout::ParamSpec& spec) { specs.push_back(spec); };
  layout::for_each(layout::embedding_params(m, parallel), add);
  layout::for_each(layout::layer_params(m, parallel, 0), add);
  return specs;
}

/// This rank's addend of a full gradient: partial gradients, shared rows and replicas get uneven addends that
/// sum to the full gradient.
inline Tensor addend_of(const Parameter& p, int step, int tp_rank, int tp_size, int replica, int replicas) {
  Tensor local = test::local_shard(p, gradient(p.spec, step));
  const auto weight = [](int rank, int size) { return 2.0 * (rank + 1) / (size * (size + 1)); };
  local.mul_(weight(replica, replicas));
  if (p.spec.sharded_dims.empty())
    return p.spec.partial.has(layout::Axis::kTp) ? local * weight(tp_rank, tp_size) : local;
  for (const layout::ShardBox& part : p.shard.boxes)
    tensor::box_view(local, part.local, part.length).mul_(weight(tp_rank % part.holders, part.holders));
  return local;
}

}  // namespace colonnade::optim::toys
