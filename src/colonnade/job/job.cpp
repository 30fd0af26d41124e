// See job.h.
#include "colonnade/job/job.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/base/progress.h"
#include "colonnade/config/optimizers.h"
#include "colonnade/cost/memory.h"
#include "colonnade/fault/inject.h"
#include "colonnade/job/buffers.h"
#include "colonnade/job/start.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/tensor/counting_allocator.h"
#include "colonnade/tensor/dtypes.h"

namespace colonnade::job {
namespace {

using layout::Axis;

/// Measures laps in seconds, without communication, which is summed separately.
class Stopwatch {
 public:
  double lap() {
    const std::int64_t now = monotonic_ns(), communication = progress().communication_ns();
    const std::int64_t elapsed = now - begin_ns_, communicated = communication - communication_ns_;
    begin_ns_ = now;
    communication_ns_ = communication;
    communication_s += static_cast<double>(communicated) * 1e-9;
    return static_cast<double>(elapsed - communicated) * 1e-9;
  }
  double communication_s = 0;

 private:
  std::int64_t begin_ns_ = monotonic_ns();
  std::int64_t communication_ns_ = progress().communication_ns();
};

/// Ranks of this rank's pipeline stage, for optimizers that update whole matrices.
optim::StageRanks stage_ranks(const config::Optimizer& settings, comm::Communicators& ranks) {
  if (!config::traits_of(settings.optimizer).updates_matrices) return {};
  optim::StageRanks stage{ranks.group({Axis::kTp, Axis::kCp, Axis::kDp}), {}};
  const auto& members = stage.group.ranks();
  for (const int rank : members) stage.positions.push_back(ranks.mesh().position(rank));
  if (members.empty()) stage.positions.push_back(ranks.mesh().position(ranks.rank()));
  return stage;
}

/// Waits for the current stream: kernels run asynchronously, so a time without this ends too early.
void synchronize(const at::Device& device) {
  if (!device.is_cuda()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(device));
}

/// The largest value; NaN if one is NaN.
double largest(const std::vector<std::vector<double>>& rows) {
  double most = -std::numeric_limits<double>::infinity();
  for (const std::vector<double>& row : rows)
    for (const double value : row)
      if (std::isnan(value) || value > most) most = value;
  return most;
}

}  // namespace

at::Device device_of(const config::Run& run) {
  return run.training.device == "cuda" ? c10::impl::VirtualGuardImpl(at::kCUDA).getDevice()
                                       : at::Device(run.training.device);
}

Job::Job(config::Run given, comm::Communicators given_ranks, const ModelBuilder& builder,
         InitialValues values, const std::optional<config::Dtypes>& dtypes)
    : run(std::move(given)),
      ranks(std::move(given_ranks)),
      dtypes_(dtypes.value_or(config::dtypes_of(run))),
      options_(tensor::options(dtypes_.residual, device_of(run))),
      batch_schedule_(config::batch_schedule(run.training)) {
  if (options_.device().is_cuda()) require_deterministic_kernels();
  layers::Context context = layer_context(run, ranks, tensor::options(dtypes_.parameter, options_.device()));
  context.random_init = values == InitialValues::kRandom;
  context.deferred_init = true;
  const layout::SequenceShard part = context.sequence_part();
  const std::shared_ptr<Turns> turns = context.turns;
  const std::vector<layout::StageBlocks> blocks = blocks_of(run, ranks.coord(Axis::kPp));
  model = builder({run, ranks, blocks, std::move(context)});

  std::vector<tensor::Stage*> stages;
  for (const auto& stage : model.stages) stages.push_back(stage.get());
  buffers_ = make_buffers(run, ranks, stages, dtypes_, options_.device());
  optimizer_ = std::make_unique<optim::Optimizer>(
      run.optimizer, *buffers_, ranks.world(), dtypes_.needs_loss_scale(),
      std::vector<layout::OptimizerGroup>{}, stage_ranks(run.optimizer, ranks));

  executor_ = std::make_unique<pipeline::Executor>(cost::schedule_of(run), stages, ranks.group({Axis::kPp}),
                                                   activation_of(run, blocks, part), options_, turns);
  if (options_.device().is_cuda()) executor_->warm_up_p2p();
  if (run.logging.timing_log_level >= 2) executor_->time_passes();
}

int Job::num_microbatches() const {
  if (batch_schedule_.is_constant()) return executor_->schedule().microbatches;
  const std::int64_t per_round = run.training.micro_batch_size * data_ranks();
  return static_cast<int>(batch_schedule_.batch_size_at(counters.consumed_samples) / per_round);
}

int Job::num_eval_microbatches() const {
  if (!config::has_eval_batch_size(run.training)) return executor_->schedule().microbatches;
  const std::int64_t per_round = config::eval_micro_batch_size(run.training) * data_ranks();
  return static_cast<int>(config::eval_batch_size(run.training) / per_round);
}

pipeline::Steps Job::with_schedule(pipeline::Steps steps, int microbatches) {
  if (steps.schedule || microbatches == executor_->schedule().microbatches) return steps;
  if (!other_schedule_ || other_schedule_->microbatches != microbatches)
    other_schedule_ = std::make_shared<const schedule::Schedule>(cost::schedule_of(run, microbatches));
  steps.schedule = other_schedule_;
  return steps;
}

int Job::data_rank() const { return ranks.coord(Axis::kDp); }
int Job::data_ranks() const { return ranks.mesh().size(Axis::kDp); }

std::vector<tensor::Parameter*> Job::parameters() const {
  std::vector<tensor::Parameter*> all;
  for (const auto& stage : model.stages) {
    const auto own = stage->parameters();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

/// Gathers the names that any rank reports: stages report the losses and counts of their own blocks.
void Job::agree_on_names(const tensor::Report& local, Names& names) {
  nlohmann::json own = {{"sums", nlohmann::json::array()}, {"counts", nlohmann::json::object()}};
  for (const auto& [name, sum] : local.metric_sums) own["sums"].push_back(name);
  for (const auto& [name, numbers] : local.counts) own["counts"][name] = numbers.numel();
  std::set<std::string> losses;
  for (const std::string& text : ranks.world().all_gather_text(own.dump(), "names of the losses")) {
    const auto theirs = nlohmann::json::parse(text);
    losses.merge(theirs["sums"].get<std::set<std::string>>());
    for (const auto& [name, numbers] : theirs["counts"].items())
      names.counts[name] = numbers.get<std::int64_t>();
  }
  names.losses.assign(losses.begin(), losses.end());
}

/// All-reduces losses and counts over all replicas and stages, in one tensor. The first tensor-parallel rank
/// contributes its group's losses; every rank contributes its own counts. The first call agrees on `names`.
Job::Sums Job::reduce(const tensor::Report& local, Names& names) {
  comm::Group world = ranks.world();
  if (names.losses.empty()) agree_on_names(local, names);
  for (const auto& [name, sum] : local.metric_sums)
    COL_CHECK(
        std::ranges::count(names.losses, name) == 1,
        "losses: every step must report the same names; got {}, which is not among {}; report it in every step, with "
        "a count of 0 where it has no values",
        name, fmt::join(names.losses, ", "));
  std::int64_t size = 2 * static_cast<std::int64_t>(names.losses.size());
  for (const auto& [name, numbers] : names.counts) size += numbers;
  const at::Tensor sums = at::zeros({size}, options_.dtype(at::kDouble));
  std::int64_t at = 0;
  for (const std::string& name : names.losses) {
    const auto found = local.metric_sums.find(name);
    if (found != local.metric_sums.end() && ranks.coord(Axis::kTp) == 0)
      sums.narrow(0, at, 2).copy_(found->second);
    at += 2;
  }
  for (const auto& [name, numbers] : names.counts) {
    const auto found = local.counts.find(name);
    if (found != local.counts.end()) sums.narrow(0, at, numbers).copy_(found->second.reshape(-1));
    at += numbers;
  }
  world.all_reduce(sums, kLossSums).wait();
  const at::Tensor host = tensor::to_host(sums);
  const double* value = host.const_data_ptr<double>();
  Sums all;
  for (const std::string& name : names.losses) {
    all.losses[name] = {value[0], value[1]};
    value += 2;
  }
  for (const auto& [name, numbers] : names.counts) {
    all.counts[name].assign(value, value + numbers);
    value += numbers;
  }
  return all;
}

std::map<std::string, double> Job::means(const std::map<std::string, Sum>& sums) {
  std::map<std::string, double> means;
  for (const auto& [name, sum] : sums) means[name] = sum.count == 0 ? sum.sum : sum.sum / sum.count;
  return means;
}

double Job::tokens_of(const std::map<std::string, Sum>& sums) const {
  const auto found = sums.find("lm_loss");
  if (found == sums.end() && options_.device().is_meta())
    return 0;  // a dry run has the losses of one rank only
  if (found == sums.end())
    throw ConfigError(
        "--calculate-per-token-loss requires a loss named lm_loss, whose count divides the gradients; got other "
        "names; rename the loss, or remove the flag");
  return found->second.count;
}

namespace {

/// `steps` that also append the lm_loss of every micro-batch to `losses`, if they are `wanted`.
pipeline::Steps with_recorded_losses(pipeline::Steps steps, bool wanted, std::vector<at::Tensor>& losses) {
  if (!wanted) return steps;
  steps.loss = [&losses, inner = steps.loss](const at::Tensor& output, const tensor::Batch& batch) {
    pipeline::Loss loss = inner(output, batch);
    if (loss.report.contains("lm_loss")) losses.push_back(loss.report.at("lm_loss"));
    return loss;
  };
  return steps;
}

}  // namespace

StepReport Job::train_step(const pipeline::Steps& steps, const optim::StepOptions& options) {
  progress().set_step(counters.iteration + 1);
  StepReport report;
  report.samples = batch_schedule_.batch_size_at(counters.consumed_samples);
  report.loss_scale = optimizer_->loss_scale().scale;
  const bool per_token = run.training.calculate_per_token_loss;
  const double weight = per_token ? 1.0 : 1.0 / (static_cast<double>(num_microbatches()) * data_ranks());
  progress().set_phase("forward-backward");
  Stopwatch stopwatch;
  tensor::reset_peak(options_.device());
  buffers_->start_step();
  // With per-token weights, the mean over a micro-batch has the weight of its tokens.
  const double tokens = static_cast<double>(run.training.micro_batch_size * run.training.seq_length);
  std::vector<at::Tensor> losses;
  const pipeline::Steps recorded = with_recorded_losses(with_schedule(steps, num_microbatches()),
                                                        run.training.check_for_spiky_loss, losses);
  const auto result = executor_->train(recorded, report.loss_scale * weight, gradient_events(*buffers_),
                                       per_token ? tokens : 1.0);
  fault::point("forward-backward");
  progress().set_phase("gradient sync");
  buffers_->finish();
  add_local_values(losses, report);
  for (const auto& stage : model.stages) stage->finish_step();
  fault::point("gradient-sync");
  Sums sums = reduce(result.report, train_names_);
  report.losses = means(sums.losses);
  report.counts = std::move(sums.counts);
  fault::point("losses");
  synchronize(options_.device());
  report.seconds.forward_backward = stopwatch.lap();
  report.seconds.forward = result.forward_s;
  report.seconds.backward = result.backward_s;
  report.peaks.forward_backward = tensor::take_peak(options_.device());

  progress().set_phase("optimizer");
  optim::StepOptions update = options;
  // A dry run is a single rank, possibly one that reports no loss.
  if (per_token && !options_.device().is_meta())
    update.grad_multiplier /= std::max(tokens_of(sums.losses), 1.0);
  if (run.tracks_attention_logits()) {
    const auto max_logits = max_attention_logits(result.report);
    report.max_attention_logit = largest(max_logits);
    if (run.optimizer.qk_clip) update.row_scales = qk_clip_scales(max_logits);
  }
  report.optimizer = optimizer_->step(update);
  fault::point("optimizer");
  synchronize(options_.device());
  report.seconds.optimizer = stopwatch.lap();
  report.seconds.communication = stopwatch.communication_s;
  report.peaks.optimizer = tensor::take_peak(options_.device());
  check_finite(report);
  counters.iteration += 1;
  counters.consumed_samples += report.samples;
  counters.skipped += report.optimizer.skipped ? 1 : 0;
  return report;
}

std::vector<std::vector<double>> Job::max_attention_logits(const tensor::Report& local) {
  const std::int64_t layers = run.model.total_layers(), heads = run.model.num_attention_heads;
  const at::Tensor all =
      at::full({layers, heads}, -std::numeric_limits<double>::infinity(), options_.dtype(at::kDouble));
  for (const auto& [layer, logits] : local.max_attention_logits) all.select(0, layer).copy_(logits);
  // A maximum over ranks may drop NaN.
  const double infinity = std::numeric_limits<double>::infinity();
  ranks.world()
      .all_reduce(all.nan_to_num_(infinity, infinity, -infinity), "largest attention scores",
                  comm::Reduce::kMax)
      .wait();
  const at::Tensor host = tensor::to_host(all);
  const double* value = host.const_data_ptr<double>();
  std::vector<std::vector<double>> by_layer;
  for (std::int64_t i = 0; i < layers; ++i, value += heads) by_layer.emplace_back(value, value + heads);
  return by_layer;
}

layout::RowScales Job::qk_clip_scales(const std::vector<std::vector<double>>& max_logits) const {
  const layout::QkClip clip{run.optimizer.qk_clip_alpha, run.optimizer.qk_clip_threshold};
  layout::RowScales scales;
  for (std::size_t i = 0; i < max_logits.size(); ++i)
    if (std::ranges::any_of(max_logits[i], [&](double score) { return clip.scale(score) < 1; }))
      layout::add_qk_clip_scales(layout::layer_params(run.model, run.parallel, static_cast<std::int64_t>(i)),
                                 run.model, clip, max_logits[i], scales);
  return scales;
}

StepReport Job::skip_step() {
  StepReport report;
  report.samples = batch_schedule_.batch_size_at(counters.consumed_samples);
  report.ran = false;
  report.loss_scale = optimizer_->loss_scale().scale;
  report.optimizer = {.grad_norm = std::nan(""), .skipped = true};
  counters.iteration += 1;
  counters.consumed_samples += report.samples;
  counters.skipped += 1;
  return report;
}

void Job::add_local_values(const std::vector<at::Tensor>& losses, StepReport& report) {
  if (!losses.empty() && !options_.device().is_meta()) {
    const at::Tensor host = tensor::to_host(at::stack(losses).to(at::kDouble));
    const double* value = host.const_data_ptr<double>();
    for (std::size_t i = 0; i < losses.size(); ++i, value += 2)
      report.microbatch_losses.push_back(value[0] / std::max(value[1], 1.0));
  }
  for (const auto& [bucket, norm] : buffers_->take_norms())
    report.bucket_norms.emplace_back(bucket, norm.item<double>() / report.loss_scale);
}

void Job::check_finite(const StepReport& report) const {
  const bool handled_by_scale = optimizer_->loss_scale().dynamic && report.optimizer.skipped;
  if (!run.training.check_for_nan_in_loss_and_grad || handled_by_scale) return;
  const auto require_finite = [&](bool finite, std::string_view name, double value) {
    if (finite) return;
    progress().set_agreed_exit_code(kExitFailed);  // every rank has the same sums
    throw Error(fmt::format(
        "{} must be finite; got {} in step {}; lower the learning rate, or inspect the samples of "
        "this step",
        name, value, counters.iteration + 1));
  };
  for (const auto& [name, value] : report.losses) require_finite(std::isfinite(value), name, value);
  require_finite(!report.optimizer.skipped, "gradient norm", report.optimizer.grad_norm);
}

std::map<std::string, double> Job::evaluate(int batches,
                                            const std::function<pipeline::Steps(int batch)>& steps_of) {
  tensor::Report sums;
  for (int i = 0; i < batches; ++i) {
    const auto result = executor_->evaluate(with_schedule(steps_of(i), num_eval_microbatches()));
    for (const auto& [key, sum] : result.report.metric_sums) tensor::add(sums.metric_sums, key, sum);
  }
  return means(reduce(sums, evaluation_names_).losses);
}

}  // namespace colonnade::job
