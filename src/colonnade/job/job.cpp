// See job.h.
#include "colonnade/job/job.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/base/progress.h"
#include "colonnade/cost/memory.h"
#include "colonnade/fault/inject.h"
#include "colonnade/job/buffers.h"
#include "colonnade/job/start.h"
#include "colonnade/tensor/counting_allocator.h"

namespace colonnade::job {
namespace {

using layout::Axis;

/// Splits time into laps: seconds since the last call without communication, which is counted apart.
class Laps {
 public:
  double operator()() {
    const std::int64_t now = monotonic_ns(), talked = progress().communication_ns();
    const std::int64_t lap = now - begin_ns_, talk = talked - talked_ns_;
    begin_ns_ = now;
    talked_ns_ = talked;
    communication_s += static_cast<double>(talk) * 1e-9;
    return static_cast<double>(lap - talk) * 1e-9;
  }
  double communication_s = 0;

 private:
  std::int64_t begin_ns_ = monotonic_ns();
  std::int64_t talked_ns_ = progress().communication_ns();
};

/// A kernel that was started is not over: times are taken when the device has done all of it.
void settle(const at::Device& device) {
  if (!device.is_cuda()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(device));
}

}  // namespace

at::TensorOptions tensor_options(const config::Run& run) {
  const auto dtype = run.model.params_dtype == config::ParamsDtype::kBfloat16  ? at::kBFloat16
                     : run.model.params_dtype == config::ParamsDtype::kFloat16 ? at::kHalf
                                                                               : at::kFloat;
  const at::Device device = run.training.device == "cuda" ? c10::impl::VirtualGuardImpl(at::kCUDA).getDevice()
                                                          : at::Device(run.training.device);
  return at::TensorOptions().dtype(dtype).device(device);
}

Job::Job(config::Run given, comm::Communicators given_ranks, const ModelBuilder& builder,
         InitialValues values, std::optional<at::ScalarType> type)
    : run(std::move(given)), ranks(std::move(given_ranks)), options_(tensor_options(run)) {
  if (type) options_ = options_.dtype(*type);
  if (options_.device().is_cuda()) choose_repeatable_kernels();
  layers::Context context = layer_context(run, ranks, options_);
  context.draws = values == InitialValues::kDrawn;
  context.puts_off = true;
  const layout::SequencePart part = context.sequence_part();
  const std::vector<layout::StageBlocks> blocks = blocks_of(run, ranks.coord(Axis::kPp));
  model = builder({run, ranks, blocks, std::move(context)});

  std::vector<tensor::Stage*> stages;
  for (const auto& stage : model.stages) stages.push_back(stage.get());
  buffers_ = make_buffers(run, ranks, stages, options_);
  optimizer_ = std::make_unique<optim::Optimizer>(run.optimizer, *buffers_, ranks.world(),
                                                  run.model.params_dtype == config::ParamsDtype::kFloat16);

  executor_ = std::make_unique<pipeline::Executor>(cost::schedule_of(run), stages, ranks.group({Axis::kPp}),
                                                   activation_of(run, blocks, part), options_);
  if (options_.device().is_cuda()) executor_->open_lanes();
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

/// What any rank reports: stages report the losses and counts of their own blocks.
void Job::agree_on_names(const tensor::Report& local, Names& names) {
  nlohmann::json own = {{"tallies", nlohmann::json::array()}, {"counts", nlohmann::json::object()}};
  for (const auto& [name, tally] : local.tallies) own["tallies"].push_back(name);
  for (const auto& [name, numbers] : local.counts) own["counts"][name] = numbers.numel();
  std::set<std::string> tallies;
  for (const std::string& text : ranks.world().all_gather_text(own.dump(), "names of the losses")) {
    const auto theirs = nlohmann::json::parse(text);
    tallies.merge(theirs["tallies"].get<std::set<std::string>>());
    for (const auto& [name, numbers] : theirs["counts"].items())
      names.counts[name] = numbers.get<std::int64_t>();
  }
  names.tallies.assign(tallies.begin(), tallies.end());
}

/// Sums over all replicas and stages, in one tensor: of losses the first tensor rank speaks for its group, of
/// counts every rank for itself. `names` are agreed on the first time.
Job::Sums Job::reduce(const tensor::Report& local, Names& names) {
  comm::Group world = ranks.world();
  if (names.tallies.empty()) agree_on_names(local, names);
  for (const auto& [name, tally] : local.tallies)
    COL_CHECK(
        std::ranges::count(names.tallies, name) == 1,
        "losses: every step must report the same names; got {} beside {}; report it always, with a count of "
        "0 where there is nothing",
        name, fmt::join(names.tallies, ", "));
  std::int64_t size = 2 * static_cast<std::int64_t>(names.tallies.size());
  for (const auto& [name, numbers] : names.counts) size += numbers;
  const at::Tensor sums = at::zeros({size}, options_.dtype(at::kDouble));
  std::int64_t at = 0;
  for (const std::string& name : names.tallies) {
    const auto found = local.tallies.find(name);
    if (found != local.tallies.end() && ranks.coord(Axis::kTp) == 0)
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
  for (const std::string& name : names.tallies) {
    all.tallies[name] = {value[0], value[1]};
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
  if (found == sums.end() && options_.device().is_meta()) return 0;  // a rank alone knows its own losses only
  if (found == sums.end())
    throw ConfigError(
        "--calculate-per-token-loss: the loss must report lm_loss, whose count gradients are divided by; got "
        "other names; call it lm_loss, or leave the flag out");
  return found->second.count;
}

StepReport Job::train_step(const pipeline::Steps& steps, const optim::StepOptions& options) {
  progress().set_step(counters.iteration + 1);
  StepReport report;
  report.loss_scale = optimizer_->loss_scale().scale;
  const bool per_token = run.training.calculate_per_token_loss;
  const double weight = per_token ? 1.0 : 1.0 / (static_cast<double>(num_microbatches()) * data_ranks());
  progress().set_phase("forward-backward");
  Laps lap;
  tensor::reset_peak(options_.device());
  buffers_->start_step();
  // With every token weighing the same, a mean over a micro-batch weighs as its tokens.
  const double tokens = static_cast<double>(run.training.micro_batch_size * run.training.seq_length);
  const auto result = executor_->train(steps, report.loss_scale * weight, gradient_events(*buffers_),
                                       per_token ? tokens : 1.0);
  fault::point("forward-backward");
  progress().set_phase("gradient sync");
  buffers_->finish();
  for (const auto& stage : model.stages) stage->finish_step();
  fault::point("gradient-sync");
  Sums sums = reduce(result.report, train_names_);
  report.losses = means(sums.tallies);
  report.counts = std::move(sums.counts);
  fault::point("losses");
  settle(options_.device());
  report.seconds.forward_backward = lap();
  report.peaks.forward_backward = tensor::take_peak(options_.device());

  progress().set_phase("optimizer");
  optim::StepOptions update = options;
  // The rank of a dry run is alone and may be one that reports no loss.
  if (per_token && !options_.device().is_meta())
    update.grad_multiplier /= std::max(tokens_of(sums.tallies), 1.0);
  report.optimizer = optimizer_->step(update);
  fault::point("optimizer");
  settle(options_.device());
  report.seconds.optimizer = lap();
  report.seconds.communication = lap.communication_s;
  report.peaks.optimizer = tensor::take_peak(options_.device());
  check_finite(report);
  counters.iteration += 1;
  counters.consumed_samples += run.training.global_batch_size;
  counters.skipped += report.optimizer.skipped ? 1 : 0;
  return report;
}

void Job::check_finite(const StepReport& report) const {
  const bool told_by_scale = optimizer_->loss_scale().dynamic && report.optimizer.skipped;
  if (!run.training.check_for_nan_in_loss_and_grad || told_by_scale) return;
  const auto require_finite = [&](bool finite, std::string_view name, double value) {
    if (finite) return;
    progress().set_agreed_end(kExitFailed);  // every rank has the same sums
    throw Error(
        fmt::format("{}: it must be finite; got {} in step {}; lower the learning rate, or look at the "
                    "samples of this step",
                    name, value, counters.iteration + 1));
  };
  for (const auto& [name, value] : report.losses) require_finite(std::isfinite(value), name, value);
  require_finite(!report.optimizer.skipped, "gradient norm", report.optimizer.grad_norm);
}

std::map<std::string, double> Job::evaluate(int batches,
                                            const std::function<pipeline::Steps(int batch)>& steps_of) {
  tensor::Report sums;
  for (int i = 0; i < batches; ++i) {
    const auto result = executor_->evaluate(steps_of(i));
    for (const auto& [key, tally] : result.report.tallies) tensor::add(sums.tallies, key, tally);
  }
  return means(reduce(sums, evaluation_names_).tallies);
}

}  // namespace colonnade::job
