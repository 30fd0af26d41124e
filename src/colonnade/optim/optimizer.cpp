// See optimizer.h.
#include "colonnade/optim/optimizer.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>

#include "colonnade/base/error.h"
#include "colonnade/ops/optimizer.h"
#include "colonnade/optim/exact_squares.h"
#include "colonnade/tensor/metric_sum.h"

namespace colonnade::optim {
namespace {

at::Tensor zeros_like_fp(const at::Tensor& grad) { return at::zeros({grad.numel()}, grad.options()); }

}  // namespace

Optimizer::Optimizer(const config::Optimizer& settings, data_parallel::GradBuffers& buffers,
                     comm::Group world, bool fp16)
    : settings_(settings),
      buffers_(&buffers),
      world_(std::move(world)),
      scale_(initial_loss_scale(settings, fp16)) {
  make_segments(buffers);
  for (const Segment& segment : segments_) count_elements(segment);
}

void Optimizer::make_segments(data_parallel::GradBuffers& buffers) {
  const at::NoGradGuard no_grad;
  for (const auto& [parameter, offset] : buffers.entries()) {
    const std::int64_t end = offset + parameter->value.numel();
    for (const data_parallel::OwnedShard& owned : buffers.owned()) {
      const std::int64_t from = std::max(offset, owned.begin);
      const std::int64_t to = std::min(end, owned.end);
      if (from >= to) continue;
      Segment s{.parameter = parameter, .begin = from - offset};
      s.model = owned.params.narrow(0, from - owned.begin, to - from);
      s.grad = owned.grads.narrow(0, from - owned.begin, to - from);
      s.main = s.model.scalar_type() == s.grad.scalar_type() ? s.model : s.model.to(s.grad.scalar_type());
      const bool adam = settings_.optimizer == config::OptimizerKind::kAdam;
      if (adam || settings_.sgd_momentum > 0) s.exp_avg = zeros_like_fp(s.grad);
      if (adam) s.exp_avg_sq = zeros_like_fp(s.grad);
      segments_.push_back(std::move(s));
    }
  }
}

/// Adds the elements of a segment that this rank counts in norms, without padding.
void Optimizer::count_elements(const Segment& s) {
  const tensor::Parameter& p = *s.parameter;
  if (p.is_tied_copy || !buffers_->is_primary_replica(p.spec.param_group)) return;
  for (const layout::LocalSpan& owned : layout::owned(p.spec, p.shard)) {
    const std::int64_t from = std::max(owned.begin, s.begin);
    const std::int64_t to = std::min(owned.end, s.begin + s.grad.numel());
    if (from >= to) continue;
    counted_.push_back(
        {s.grad.narrow(0, from - s.begin, to - from), s.model.narrow(0, from - s.begin, to - from)});
  }
}

std::vector<double> Optimizer::sum_over_ranks(std::vector<double> values) {
  if (world_.size() == 1) return values;
  at::Tensor sums = at::tensor(values, at::kDouble).to(buffers_->grads().device());
  world_.all_reduce(sums, "gradient norm").wait();
  const at::Tensor host = tensor::to_host(sums);
  std::copy_n(host.const_data_ptr<double>(), values.size(), values.begin());
  return values;
}

StepResult Optimizer::step(const StepOptions& options) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> grads;
  for (const NormElements& c : counted_) grads.push_back(c.grad);
  const bool exact = buffers_->deterministic();
  const double squares = exact ? 0 : ops::sum_squares(grads);
  const double zeros = options.count_zeros ? static_cast<double>(ops::count_zeros(grads)) : 0.0;
  const auto sums = sum_over_ranks({squares, zeros});
  const double all = exact ? exact_squares(grads, world_, buffers_->grads().device()) : sums[0];
  StepResult result;
  const double unscale = options.grad_multiplier / scale_.scale;
  result.grad_norm = std::sqrt(all) * unscale;
  result.num_zeros = static_cast<std::int64_t>(sums[1]);
  result.skipped = !std::isfinite(result.grad_norm);
  if (!result.skipped) {
    const double coefficient =
        settings_.clip_grad > 0 ? settings_.clip_grad / (result.grad_norm + 1e-6) : 1.0;
    update(options, std::min(coefficient, 1.0) * unscale);
  }
  scale_ = next(scale_, result.skipped, settings_);
  return result;
}

/// Weight decay applies to matrices and, with --apply-wd-to-qk-layernorm, to QK norms.
bool Optimizer::decays(const tensor::Parameter& parameter) const {
  const std::string& name = parameter.spec.name;
  const bool qk_norm = name.ends_with(".q_layernorm.weight") || name.ends_with(".k_layernorm.weight");
  return parameter.spec.weight_decay || (qk_norm && settings_.apply_wd_to_qk_layernorm);
}

void Optimizer::update(const StepOptions& options, double grad_scale) {
  ++steps_;
  const bool adam = settings_.optimizer == config::OptimizerKind::kAdam;
  const auto t = static_cast<double>(steps_);
  for (const bool decayed : {true, false}) {
    std::vector<ops::AdamTensors> adam_tensors;
    std::vector<ops::SgdTensors> sgd_tensors;
    for (const Segment& s : segments_) {
      if (decays(*s.parameter) != decayed) continue;
      const at::Tensor copy_out = s.main.is_same(s.model) ? at::Tensor() : s.model;
      if (adam)
        adam_tensors.push_back({s.main, s.grad, s.exp_avg, s.exp_avg_sq, copy_out});
      else
        sgd_tensors.push_back({s.main, s.grad, s.exp_avg, copy_out});
    }
    const double decay = decayed ? options.weight_decay : 0.0;
    if (adam)
      ops::adam_update(adam_tensors, {.lr = options.learning_rate,
                                      .beta1 = settings_.adam_beta1,
                                      .beta2 = settings_.adam_beta2,
                                      .eps = settings_.adam_eps,
                                      .weight_decay = decay,
                                      .decoupled = true,
                                      .bias1 = 1.0 - std::pow(settings_.adam_beta1, t),
                                      .bias2 = 1.0 - std::pow(settings_.adam_beta2, t),
                                      .grad_scale = grad_scale});
    else
      ops::sgd_update(sgd_tensors, {.lr = options.learning_rate,
                                    .momentum = settings_.sgd_momentum,
                                    .weight_decay = decay,
                                    .first = steps_ == 1,
                                    .grad_scale = grad_scale});
  }
  buffers_->gather_params();
}

double Optimizer::params_norm() {
  const at::NoGradGuard no_grad;
  double squares = 0;
  for (const NormElements& c : counted_)  // casts one at a time: slow, but only for logging
    squares += ops::sum_squares({c.model.to(c.grad.scalar_type())});
  return std::sqrt(sum_over_ranks({squares})[0]);
}

void Optimizer::adopt_main() {
  const at::NoGradGuard no_grad;
  for (const Segment& s : segments_)
    if (!s.main.is_same(s.model)) s.model.copy_(s.main);
  buffers_->gather_params();
}

void Optimizer::adopt_parameters() {
  const at::NoGradGuard no_grad;
  for (const Segment& s : segments_)
    if (!s.main.is_same(s.model)) s.main.copy_(s.model);
}

}  // namespace colonnade::optim
