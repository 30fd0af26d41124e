// See step_record.h.
#include "colonnade/train/step_record.h"

#include <algorithm>
#include <cmath>

#include "colonnade/cost/flops.h"
#include "colonnade/record/layer_metrics.h"
#include "colonnade/record/throughput.h"
#include "colonnade/tensor/counting_allocator.h"

namespace colonnade::train {

record::StepRecord step_record(job::Job& job, const job::StepReport& report, const StepExchange& all,
                               double learning_rate, std::optional<double> peak_tflops) {
  const config::Run& run = job.run;
  record::StepRecord record;
  record.iteration = job.counters.iteration;
  record.consumed_samples = job.counters.consumed_samples;
  const cost::SampleLength length = cost::sample_length(run);
  record.consumed_tokens = job.counters.consumed_samples * length.all();
  if (!report.ran) record.lm_loss = std::nan("");
  if (!job.batch_schedule().is_constant()) record.global_batch_size = report.samples;
  record.grad_norm = report.optimizer.grad_norm;
  record.learning_rate = learning_rate;
  record.loss_scale = report.loss_scale;
  if (run.logging.log_num_zeros_in_grad) record.num_zeros = report.optimizer.num_zeros;
  record.skipped = report.optimizer.skipped;
  record.step_ms = all.step_ms;
  const std::int64_t trained = report.ran ? report.samples : 0;
  record.tokens_per_second = record::tokens_per_second(trained * length.all(), all.step_ms);
  record.tflops_per_device = record::tflops_per_device(
      cost::training_flops(run.model, length, trained, run.parallel.tensor_model_parallel_size), all.step_ms,
      run.parallel.world_size);
  record.mfu = record::model_flops_utilization(record.tflops_per_device, peak_tflops);
  record.peak_memory_bytes = static_cast<std::uint64_t>(all.peak_memory);
  record.peak_memory_rank = all.peak_rank;
  for (const auto& [name, value] : report.losses) {
    if (name == "lm_loss")
      record.lm_loss = value;
    else if (!record::is_layer_loss(name))
      record.extra_losses.emplace_back(name, value);
  }
  if (report.max_attention_logit)
    record.extra_losses.emplace_back("max_attention_logit", *report.max_attention_logit);
  if (run.logging.log_params_norm)
    record.extra_losses.emplace_back("params_norm", job.optimizer().params_norm());
  record.layer_metrics = record::layer_metrics(report.counts);
  record.layer_losses = record::layer_losses(report.losses, run.model.num_layers);
  return record;
}

record::PhaseTimes phase_times(const job::StepReport& report, const job::DataWait& data) {
  record::PhaseTimes times;
  times[record::Phase::kData] = data.before_step + data.in_step;
  times[record::Phase::kForwardBackward] = std::max(0.0, report.seconds.forward_backward - data.in_step);
  times[record::Phase::kCommunication] = report.seconds.communication;
  times[record::Phase::kOptimizer] = report.seconds.optimizer;
  return times;
}

record::OwnValues own_values(const job::StepReport& report, const job::DataWait& data, at::Device device,
                             double energy_j) {
  const record::PhaseTimes times = phase_times(report, data);
  return {.data_s = times[record::Phase::kData],
          .forward_backward_s = times[record::Phase::kForwardBackward],
          .communication_s = times[record::Phase::kCommunication],
          .optimizer_s = times[record::Phase::kOptimizer],
          .forward_s = report.seconds.forward,
          .backward_s = report.seconds.backward,
          .memory_bytes = static_cast<double>(tensor::memory_use(device).now),
          .peak_memory_bytes =
              static_cast<double>(std::max(report.peaks.forward_backward, report.peaks.optimizer)),
          .energy_j = energy_j};
}

}  // namespace colonnade::train
