// See scalars.h.
#include "colonnade/record/scalars.h"

#include <fmt/format.h>

#include <numeric>

namespace colonnade::record {
namespace {

std::string megatron_tag(const std::string& name) {
  if (name == "params_norm") return "params-norm";
  return name == "sop_loss" ? "sop loss" : name;
}

}  // namespace

std::string time_tag(Phase phase) { return fmt::format("{}-time", phase_name(phase)); }

std::vector<Scalar> step_scalars(const StepRecord& r, const PhaseTimes& phases, std::int64_t batch_size,
                                 const config::Logging& settings) {
  std::vector<Scalar> all{{"lm loss", r.lm_loss, true},
                          {"learning-rate", r.learning_rate, true},
                          {"batch-size", static_cast<double>(batch_size), true},
                          {"grad-norm", r.grad_norm, true},
                          {"loss-scale", r.loss_scale, true}};
  for (const auto& [name, value] : r.extra_losses) all.push_back({megatron_tag(name), value, true});
  for (const LayerMetric& metric : r.layer_metrics) all.push_back({event_tag(metric), worst_layer(metric)});
  for (const LayerLosses& losses : r.layer_losses)
    for (const auto& [layer, loss] : losses.second) all.push_back({event_tag(losses, layer), loss});
  if (r.num_zeros) all.push_back({"num-zeros", static_cast<double>(*r.num_zeros), true});
  all.push_back({"throughput", r.tflops_per_device});
  all.push_back({"skipped-iterations", r.skipped ? 1.0 : 0.0});
  for (const auto& [key, joules] : r.rank_values) {
    if (key != kEnergyKey) continue;
    const double mean =
        std::accumulate(joules.begin(), joules.end(), 0.0) / static_cast<double>(joules.size());
    all.push_back({"iter-energy/gpu", mean});
    all.push_back({"power/gpu", mean / (r.step_ms / 1e3)});
  }
  if (settings.log_memory_to_tensorboard)
    all.push_back({"mem-max-allocated-bytes", static_cast<double>(r.peak_memory_bytes)});
  if (!settings.log_timers_to_tensorboard) return all;
  all.push_back({"iteration-time", r.step_ms / 1e3});
  for (const Phase phase : kStepPhases) all.push_back({time_tag(phase), phases[phase]});
  return all;
}

std::vector<Scalar> eval_scalars(const EvalRecord& r, const config::Logging& settings) {
  const std::string tag = "lm loss " + r.set;
  std::vector<Scalar> all{{tag, r.loss, true}};
  if (r.sop_loss) all.push_back({fmt::format("{} {}", megatron_tag("sop_loss"), r.set), *r.sop_loss, true});
  if (settings.log_validation_ppl_to_tensorboard) all.push_back({tag + " ppl", r.perplexity(), true});
  return all;
}

}  // namespace colonnade::record
