// See optimizer.h.
#include "colonnade/optim/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "colonnade/base/error.h"
#include "colonnade/ops/optimizer.h"
#include "colonnade/optim/exact_squares.h"
#include "colonnade/optim/scaled.h"
#include "colonnade/tensor/dtypes.h"
#include "colonnade/tensor/metric_sum.h"

namespace colonnade::optim {
namespace {

/// Adds main values and states.
void add_values(Segment& s, const config::Dtypes& dtypes) {
  const at::Device device = s.model.device();
  s.main = s.model;
  if (dtypes.has_main_copy()) {
    s.main = at::empty({s.model.numel()}, tensor::options(dtypes.main_parameter, device));
    s.main_scale = make_scale(s.main.scalar_type(), device);
    store(s.model, s.main, s.main_scale);
  }
  s.states = s.rule->initial_states(s.model.numel(), dtypes, device);
  for (const at::Tensor& state : s.states) s.scales.push_back(make_scale(state.scalar_type(), device));
}

}  // namespace

Optimizer::Optimizer(const config::Optimizer& settings, data_parallel::GradBuffers& buffers,
                     comm::Group world, bool fp16, std::vector<layout::OptimizerGroup> overrides)
    : settings_(settings),
      buffers_(&buffers),
      world_(std::move(world)),
      scale_(initial_loss_scale(settings, fp16)) {
  const std::size_t num_overrides = overrides.size();
  groups_ = layout::optimizer_groups(settings, std::move(overrides));
  if (num_overrides > 0) require_matches(num_overrides);
  make_segments();
  make_update_lists();
}

/// Every rank holds some of the model's parameters, so all of them count the matches of a pattern.
void Optimizer::require_matches(std::size_t num_overrides) {
  if (buffers_->grads().is_meta()) return;  // a dry run has one rank
  std::vector<double> counts(num_overrides);
  for (const auto& [parameter, offset] : buffers_->entries())
    for (std::size_t i = 0; i < num_overrides; ++i)
      counts[i] += layout::matches(groups_[i], parameter->spec) ? 1 : 0;
  counts = sum_over_ranks(std::move(counts), "parameters of optimizer groups");
  std::vector<std::string> unmatched;
  for (std::size_t i = 0; i < num_overrides; ++i)
    if (counts[i] == 0) unmatched.push_back(groups_[i].names);
  if (!unmatched.empty())
    throw ConfigError(fmt::format(
        "pattern of optimizer group {} must match a parameter of the model; got no match; correct or remove it",
        fmt::join(unmatched, ", ")));
}

const UpdateRule& Optimizer::rule_of(const layout::OptimizerGroup& group) {
  const config::OptimizerKind kind = group.optimizer.value_or(settings_.optimizer);
  std::unique_ptr<UpdateRule>& rule = rules_[kind];
  if (rule == nullptr) rule = make_update_rule(kind, settings_);
  return *rule;
}

void Optimizer::make_segments() {
  const at::NoGradGuard no_grad;
  const config::Dtypes& dtypes = buffers_->dtypes();
  for (const auto& [parameter, offset] : buffers_->entries()) {
    const std::int64_t end = offset + parameter->value.numel();
    const layout::OptimizerGroup& group = groups_[layout::first_match(groups_, parameter->spec)];
    for (const data_parallel::OwnedShard& owned : buffers_->owned()) {
      const std::int64_t from = std::max(offset, owned.begin);
      const std::int64_t to = std::min(end, owned.end);
      if (from >= to) continue;
      Segment s{.parameter = parameter, .begin = from - offset, .group = &group};
      s.model = owned.params.narrow(0, from - owned.begin, to - from);
      s.grad = owned.grads.narrow(0, from - owned.begin, to - from);
      count_elements(s);
      if (group.frozen) continue;
      s.rule = &rule_of(group);
      add_values(s, dtypes);
      segments_.push_back(std::move(s));
    }
  }
}

/// Groups with the same rule and multipliers share a list.
Optimizer::UpdateList& Optimizer::list_of(const layout::OptimizerGroup& group) {
  const UpdateRule& rule = rule_of(group);
  const auto found = std::ranges::find_if(update_lists_, [&](const UpdateList& list) {
    return list.rule == &rule && list.lr_multiplier == group.lr_multiplier &&
           list.weight_decay_multiplier == group.weight_decay_multiplier;
  });
  if (found != update_lists_.end()) return *found;
  return update_lists_.emplace_back(
      UpdateList{&rule, group.lr_multiplier, group.weight_decay_multiplier, {}});
}

void Optimizer::make_update_lists() {
  for (const layout::OptimizerGroup& group : groups_)  // lists in the order of the groups
    if (!group.frozen) list_of(group);
  for (const Segment& s : segments_) list_of(*s.group).segments.push_back(&s);
}

/// Adds the elements of a segment that this rank counts in norms, without padding.
void Optimizer::count_elements(const Segment& s) {
  const tensor::Parameter& p = *s.parameter;
  if (p.is_tied_copy || !buffers_->is_primary_replica(p.spec.param_group)) return;
  for (const layout::LocalSpan& owned : layout::owned(p.spec, p.shard)) {
    const std::int64_t from = std::max(owned.begin, s.begin);
    const std::int64_t to = std::min(owned.end, s.begin + s.grad.numel());
    if (from >= to) continue;
    counted_.push_back({s.group->frozen ? at::Tensor() : s.grad.narrow(0, from - s.begin, to - from),
                        s.model.narrow(0, from - s.begin, to - from)});
  }
}

std::vector<double> Optimizer::sum_over_ranks(std::vector<double> values, std::string_view what) {
  if (world_.size() == 1) return values;
  at::Tensor sums = at::tensor(values, at::kDouble).to(buffers_->grads().device());
  world_.all_reduce(sums, what).wait();
  const at::Tensor host = tensor::to_host(sums);
  std::copy_n(host.const_data_ptr<double>(), values.size(), values.begin());
  return values;
}

StepResult Optimizer::step(const StepOptions& options) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> grads;
  for (const NormElements& c : counted_)
    if (c.grad.defined()) grads.push_back(c.grad);
  const bool exact = buffers_->deterministic();
  const double squares = exact ? 0 : ops::sum_squares(grads);
  const double zeros = options.count_zeros ? static_cast<double>(ops::count_zeros(grads)) : 0.0;
  const auto sums = sum_over_ranks({squares, zeros}, "gradient norm");
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

void Optimizer::update(const StepOptions& options, double grad_scale) {
  ++steps_;
  for (const UpdateList& list : update_lists_)
    list.rule->update(list.segments, {.learning_rate = list.lr_multiplier * options.learning_rate,
                                      .weight_decay = list.weight_decay_multiplier * options.weight_decay,
                                      .grad_scale = grad_scale,
                                      .number = steps_});
  buffers_->gather_params();
}

double Optimizer::params_norm() {
  const at::NoGradGuard no_grad;
  double squares = 0;
  for (const NormElements& c : counted_)  // casts one at a time: slow, but only for logging
    squares += ops::sum_squares({c.model.to(tensor::acc_type(c.model.scalar_type()))});
  return std::sqrt(sum_over_ranks({squares}, "gradient norm")[0]);
}

void Optimizer::adopt_main() {
  const at::NoGradGuard no_grad;
  for (const Segment& s : segments_)
    if (s.has_main_copy()) s.model.copy_(unscaled(s.main, s.main_scale));
  buffers_->gather_params();
}

void Optimizer::adopt_parameters() {
  const at::NoGradGuard no_grad;
  for (const Segment& s : segments_)
    if (s.has_main_copy()) store(s.model, s.main, s.main_scale);
}

}  // namespace colonnade::optim
