// See optimizer.h.
#include "colonnade/optim/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "colonnade/base/error.h"
#include "colonnade/comm/trace_range.h"
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

/// Factors of the local rows of a matrix; 1 for padding.
std::vector<double> local_rows(const tensor::Parameter& p, const std::vector<double>& global) {
  COL_CHECK(p.spec.shape.size() == 2 && p.spec.shape[0] == static_cast<std::int64_t>(global.size()),
            "{} must be a matrix with a scale for each row; got shape {} and {} scales", p.spec.name,
            fmt::join(p.spec.shape, " x "), global.size());
  std::vector<double> local(static_cast<std::size_t>(p.shard.shape[0]), 1);
  for (const layout::ShardBox& box : p.shard.boxes)
    std::copy_n(global.begin() + box.global[0], box.length[0], local.begin() + box.local[0]);
  return local;
}

/// Scales `values` of a segment by the factors of the rows; false if all of its rows have the factor 1. Rows
/// with equal factors, such as those of a head, are scaled together.
bool scale_segment(const at::Tensor& values, const Segment& s, const std::vector<double>& rows) {
  const std::int64_t columns = s.parameter->shard.shape[1], end = s.begin + values.numel();
  bool scales = false;
  for (auto row = rows.begin(); row != rows.end();) {
    const auto next = std::find_if(row, rows.end(), [&](double factor) { return factor != *row; });
    const std::int64_t from = std::max<std::int64_t>(s.begin, (row - rows.begin()) * columns);
    const std::int64_t to = std::min<std::int64_t>(end, (next - rows.begin()) * columns);
    if (*row != 1 && from < to) {
      values.narrow(0, from - s.begin, to - from).mul_(*row);
      scales = true;
    }
    row = next;
  }
  return scales;
}

}  // namespace

Optimizer::Optimizer(const config::Optimizer& settings, data_parallel::GradBuffers& buffers,
                     comm::Group world, bool fp16, std::vector<layout::OptimizerGroup> overrides,
                     StageRanks stage)
    : settings_(settings),
      buffers_(&buffers),
      world_(std::move(world)),
      scale_(initial_loss_scale(settings, fp16)) {
  const std::size_t num_patterns = overrides.size() + settings.freeze_parameters.size();
  groups_ = layout::optimizer_groups(settings, std::move(overrides));
  if (num_patterns > 0) require_matches(num_patterns);
  make_update_lists(stage);
  make_segments();
  fill_update_lists();
}

/// Every rank holds some of the model's parameters, so all of them count the matches of a pattern, and the
/// trained parameters.
void Optimizer::require_matches(std::size_t num_patterns) {
  if (buffers_->grads().is_meta()) return;  // a dry run has one rank
  std::vector<double> counts(num_patterns + 1);
  for (const auto& [parameter, offset] : buffers_->entries()) {
    for (std::size_t i = 0; i < num_patterns; ++i)
      counts[i] += layout::matches(groups_[i], parameter->spec) ? 1 : 0;
    counts.back() += groups_[layout::first_match(groups_, parameter->spec)].frozen ? 0 : 1;
  }
  counts = sum_over_ranks(std::move(counts), "parameters of optimizer groups");
  std::vector<std::string> unmatched;
  for (std::size_t i = 0; i < num_patterns; ++i)
    if (counts[i] == 0) unmatched.push_back(groups_[i].names);
  if (!unmatched.empty())
    throw ConfigError(fmt::format(
        "pattern of optimizer group {} must match a parameter of the model; got no match; correct or remove it "
        "(`*` stands for any text, as in '*.router.weight')",
        fmt::join(unmatched, ", ")));
  if (counts.back() == 0)
    throw ConfigError(
        "--freeze-parameters must leave a parameter to train; got patterns that match all; remove one");
}

/// List of the segments of a group; null for frozen groups.
Optimizer::UpdateList* Optimizer::list_of(const layout::OptimizerGroup& group) {
  if (group.frozen) return nullptr;
  const auto found = std::ranges::find_if(update_lists_, [&](const UpdateList& list) {
    return list.kind == group.optimizer.value_or(settings_.optimizer) && list.schedule == group.schedule &&
           list.lr_multiplier == group.lr_multiplier &&
           list.weight_decay_multiplier == group.weight_decay_multiplier &&
           list.eps_multiplier == group.eps_multiplier;
  });
  return found == update_lists_.end() ? nullptr : &*found;
}

/// Makes a list for all groups with the same optimizer, schedule and multipliers, in the order of the groups,
/// which is the same on all ranks.
void Optimizer::make_update_lists(const StageRanks& stage) {
  for (const layout::OptimizerGroup& group : groups_) {
    if (group.frozen || list_of(group) != nullptr) continue;
    const config::OptimizerKind kind = group.optimizer.value_or(settings_.optimizer);
    update_lists_.push_back(UpdateList{.kind = kind,
                                       .schedule = group.schedule,
                                       .lr_multiplier = group.lr_multiplier,
                                       .weight_decay_multiplier = group.weight_decay_multiplier,
                                       .eps_multiplier = group.eps_multiplier,
                                       .rule = make_update_rule(kind, settings_, stage),
                                       .scope = {}});
  }
}

void Optimizer::fill_update_lists() {
  const auto main = tensor::scalar_type(buffers_->dtypes().main_parameter);
  for (const auto& [parameter, offset] : buffers_->entries())
    if (UpdateList* list = list_of(groups_[layout::first_match(groups_, parameter->spec)]))
      list->scope.parameters.push_back(parameter);
  for (const Segment& s : segments_) list_of(*s.group)->scope.segments.push_back(&s);
  for (UpdateList& list : update_lists_) {
    list.scope.options = at::TensorOptions(main).device(buffers_->grads().device());
    list.rule->prepare(list.scope);
  }
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
      Segment s{.parameter = parameter,
                .begin = from - offset,
                .group = &group,
                .is_primary = buffers_->is_primary_replica(parameter->spec.param_group)};
      s.model = owned.params.narrow(0, from - owned.begin, to - from);
      s.grad = owned.grads.narrow(0, from - owned.begin, to - from);
      count_elements(s);
      if (group.frozen) continue;
      s.rule = list_of(group)->rule.get();
      add_values(s, dtypes);
      segments_.push_back(std::move(s));
    }
  }
}

/// Adds the elements of a segment that this rank counts in norms, without padding.
void Optimizer::count_elements(const Segment& s) {
  const tensor::Parameter& p = *s.parameter;
  if (p.is_tied_copy || !s.is_primary) return;
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
  const comm::TraceRange range([] { return std::string("optimizer"); });
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
  } else if (!options.row_scales.empty()) {
    scale_rows(options.row_scales);
    buffers_->gather_params();
  }
  scale_ = next(scale_, result.skipped, settings_);
  return result;
}

void Optimizer::update(const StepOptions& options, double grad_scale) {
  ++steps_;
  for (const UpdateList& list : update_lists_) {
    const double rate = list.schedule == layout::LrSchedule::kDecoupled
                            ? options.decoupled_learning_rate.value_or(options.learning_rate)
                            : options.learning_rate;
    list.rule->update(list.scope.segments,
                      {.learning_rate = list.lr_multiplier * rate,
                       .weight_decay = list.weight_decay_multiplier * options.weight_decay,
                       .eps_multiplier = list.eps_multiplier,
                       .grad_scale = grad_scale,
                       .number = steps_});
  }
  scale_rows(options.row_scales);
  buffers_->gather_params();
}

void Optimizer::scale_rows(const layout::RowScales& scales) {
  if (scales.empty()) return;
  for (const Segment& s : segments_) {
    const auto found = scales.find(s.parameter->spec.name);
    if (found == scales.end()) continue;
    const at::Tensor values = unscaled(s.main, s.main_scale);
    if (!scale_segment(values, s, local_rows(*s.parameter, found->second))) continue;
    if (!values.is_same(s.main)) store(values, s.main, s.main_scale);
    if (s.has_main_copy()) s.model.copy_(values);
  }
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
