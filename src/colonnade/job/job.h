// A job: model, gradient buffers, optimizer and pipeline of one rank, built from settings. The
// training loop (train/), the examples and the tests drive it.
//
//   job::Job job(run, ranks);                        // or with a custom model builder
//   job::StepReport report = job.train_step(steps, {.learning_rate = 1e-3, .weight_decay = 0.1});
//
// NeMo's names: MegatronStrategy is Job, MegatronParallel is pipeline::Executor with pipeline::Steps
// (data step, forward step, loss reduction), MegatronMixedPrecision is config::Dtypes.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/comm/communicators.h"
#include "colonnade/config/batch_schedule.h"
#include "colonnade/config/run.h"
#include "colonnade/data_parallel/grad_buffers.h"
#include "colonnade/job/model.h"
#include "colonnade/optim/optimizer.h"
#include "colonnade/pipeline/executor.h"

namespace colonnade::job {

/// Seconds of one step on this rank.
struct Seconds {
  double forward_backward = 0;  ///< without communication
  double communication = 0;     ///< starting and waiting for collectives and messages, all groups
  double optimizer = 0;         ///< without communication
  /// Passes of all micro-batches, with their collectives; 0 without --timing-log-level 2.
  double forward = 0, backward = 0;
};

/// Peak bytes in the tensor allocator of this rank during one step (tensor/counting_allocator.h); 0 on the
/// CPU without the counting allocator.
struct Peaks {
  std::uint64_t forward_backward = 0;  ///< with gradient reduction
  std::uint64_t optimizer = 0;
};

/// Result of one training step; losses, norm and counts are global and equal on all ranks.
struct StepReport {
  std::int64_t samples = 0;              ///< global batch size of the step
  bool ran = true;                       ///< false: of skip_step, without losses and an update
  std::map<std::string, double> losses;  ///< "lm_loss", ...
  /// Global counts by name (tensor::Report::counts), each an array.
  std::map<std::string, std::vector<double>> counts;
  /// Values of this rank: losses of its micro-batches, means over their tokens (--check-for-spiky-loss, on
  /// the last pipeline stage), and norms of its own gradients by bucket (--check-for-large-grads).
  std::vector<double> microbatch_losses;
  std::vector<std::pair<std::string, double>> bucket_norms;
  /// Largest attention score of the step (Run::tracks_attention_logits), before the update.
  std::optional<double> max_attention_logit;
  optim::StepResult optimizer;
  double loss_scale = 1;  ///< scale used in this step
  Seconds seconds;
  Peaks peaks;
};

/// Progress of the run; saved in checkpoints.
struct Counters {
  std::int64_t iteration = 0;         ///< steps done
  std::int64_t consumed_samples = 0;  ///< training samples read
  std::int64_t skipped = 0;           ///< steps without an update
};

enum class InitialValues {
  kRandom,    ///< drawn from the run's seed
  kRestored,  ///< left undrawn; job::restore sets all of them before the first step
};

class Job {
 public:
  /// Builds this rank's shard of the model. `run` is complete (config::derive) and checked (rules::check);
  /// `dtypes` replace the settings' (config::dtypes_of), for comparisons in float64. Collective. On CUDA it
  /// makes LibTorch's nondeterministic kernels errors in the whole process.
  Job(config::Run run, comm::Communicators ranks, const ModelBuilder& builder = build_model,
      InitialValues values = InitialValues::kRandom, const std::optional<config::Dtypes>& dtypes = {});
  Job(const Job&) = delete;  ///< its stages hold pointers into it
  Job& operator=(const Job&) = delete;

  /// Forward and backward over the micro-batches of one global batch, gradient reduction, update. The
  /// consumed samples decide the size of the batch (batch_schedule); `steps` without a schedule of their own
  /// run num_microbatches() micro-batches. A step with a gradient that is not finite is skipped, without an
  /// update. Under a dynamic loss scale and with
  /// --no-check-for-nan-in-loss-and-grad the report says so; otherwise Error is thrown, as for such a loss.
  StepReport train_step(const pipeline::Steps& steps, const optim::StepOptions& options);

  /// Counts the next step as skipped, without forward and backward; its data must be skipped too
  /// (TokenStream::skip).
  StepReport skip_step();

  /// Mean losses over `batches` evaluation batches of config::eval_batch_size samples; steps_of(i) gives the
  /// steps of batch i.
  std::map<std::string, double> evaluate(int batches,
                                         const std::function<pipeline::Steps(int batch)>& steps_of);

  [[nodiscard]] const config::BatchSchedule& batch_schedule() const { return batch_schedule_; }
  /// Micro-batches per rank of the next step, and of an evaluation step.
  [[nodiscard]] int num_microbatches() const;
  [[nodiscard]] int num_eval_microbatches() const;
  [[nodiscard]] int data_rank() const;  ///< rank among those that read different samples
  [[nodiscard]] int data_ranks() const;

  config::Run run;
  comm::Communicators ranks;
  Counters counters;
  Model model;

  /// Parameters of all model chunks. Between steps buffers().local_slice() has this rank's shards of their
  /// values.
  [[nodiscard]] std::vector<tensor::Parameter*> parameters() const;
  [[nodiscard]] optim::Optimizer& optimizer() { return *optimizer_; }
  [[nodiscard]] data_parallel::GradBuffers& buffers() { return *buffers_; }
  [[nodiscard]] pipeline::Executor& executor() { return *executor_; }
  [[nodiscard]] const config::Dtypes& dtypes() const { return dtypes_; }
  /// dtype and device of activations.
  [[nodiscard]] const at::TensorOptions& options() const { return options_; }

 private:
  struct Sum {
    double sum = 0, count = 0;
  };
  /// Names that all ranks together report; agreed on at the first reduction.
  struct Names {
    std::vector<std::string> losses;
    std::map<std::string, std::int64_t> counts;  ///< numbers of elements
  };
  struct Sums {
    std::map<std::string, Sum> losses;
    std::map<std::string, std::vector<double>> counts;
  };
  Sums reduce(const tensor::Report& local, Names& names);
  void agree_on_names(const tensor::Report& local, Names& names);
  /// Means by name; with a count of 0 the sum, which is 0.
  static std::map<std::string, double> means(const std::map<std::string, Sum>& sums);
  /// Divisor of the gradients under --calculate-per-token-loss: the number of loss tokens.
  [[nodiscard]] double tokens_of(const std::map<std::string, Sum>& sums) const;
  /// Largest score of each head over all ranks, by layer, from the reports of their blocks. Communication:
  /// one all-reduce of [layers, heads] over all ranks.
  std::vector<std::vector<double>> max_attention_logits(const tensor::Report& local);
  /// Row scales of --qk-clip; empty if no score exceeds its threshold.
  [[nodiscard]] layout::RowScales qk_clip_scales(const std::vector<std::vector<double>>& max_logits) const;
  void check_finite(const StepReport& report) const;
  /// The values of this rank that the checks of StepReport need; `losses`: sum and count by micro-batch.
  void add_local_values(const std::vector<at::Tensor>& losses, StepReport& report);
  /// `steps` with the schedule for `microbatches`, unless they have one or the executor's is for this number.
  pipeline::Steps with_schedule(pipeline::Steps steps, int microbatches);

  config::Dtypes dtypes_;
  at::TensorOptions options_;
  std::unique_ptr<data_parallel::GradBuffers> buffers_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<pipeline::Executor> executor_;  ///< with the schedule of the final batch size
  config::BatchSchedule batch_schedule_;
  /// The schedule of the last steps with another number of micro-batches.
  std::shared_ptr<const schedule::Schedule> other_schedule_;
  Names train_names_, evaluation_names_;
};

/// Name of the all-reduce of the losses.
inline constexpr std::string_view kLossSums = "losses";

/// Device of a run's tensors; on CUDA the current one, set by job::start.
at::Device device_of(const config::Run& run);

}  // namespace colonnade::job
