// A job: model, gradient buffers, optimizer and pipeline of one rank, built from settings. The
// training loop (train/), the examples and the tests drive it.
//
//   job::Job job(run, ranks);                        // or with a builder of your own
//   job::StepReport report = job.train_step(steps, {.learning_rate = 1e-3, .weight_decay = 0.1});
//
// NeMo's names: MegatronStrategy is Job, MegatronParallel is pipeline::Executor with pipeline::Steps
// (data step, forward step, loss reduction), MegatronMixedPrecision is config::Model::params_dtype
// with the fp32 main parameters of optim::Optimizer.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/comm/communicators.h"
#include "colonnade/config/run.h"
#include "colonnade/data_parallel/grad_buffers.h"
#include "colonnade/job/model.h"
#include "colonnade/optim/optimizer.h"
#include "colonnade/pipeline/executor.h"

namespace colonnade::job {

/// Seconds of one step on this rank.
struct Seconds {
  double forward_backward = 0;  ///< without communication
  double communication = 0;     ///< starting operations of groups and waiting for them, of all axes
  double optimizer = 0;         ///< without communication
};

/// Most bytes alive in the tensor allocator of this rank during one step (tensor/counting_allocator.h);
/// 0 on the CPU when nobody counts.
struct Peaks {
  std::uint64_t forward_backward = 0;  ///< with the sums of gradients
  std::uint64_t optimizer = 0;
};

/// What one training step did; losses, norm and counts are global and equal on all ranks.
struct StepReport {
  std::map<std::string, double> losses;  ///< "lm_loss", ...
  /// Of things that ranks count (tensor::Report::counts), by name.
  std::map<std::string, std::vector<double>> counts;
  optim::StepResult optimizer;
  double loss_scale = 1;  ///< the step used it
  Seconds seconds;
  Peaks peaks;
};

/// How far the run has come; kept in checkpoints.
struct Counters {
  std::int64_t iteration = 0;         ///< steps done
  std::int64_t consumed_samples = 0;  ///< training samples read
  std::int64_t skipped = 0;           ///< steps without an update
};

enum class InitialValues {
  kDrawn,     ///< from the run's seed
  kRestored,  ///< job::restore gives all of them before the first step; none is drawn
};

class Job {
 public:
  /// Builds this rank's part. `run` is complete (config::derive) and sound (rules::check); `type` of
  /// parameters and activations, where it is not the settings', is float64 for comparisons. Collective. On
  /// CUDA it forbids LibTorch's kernels that do not give equal bits twice, in the whole process.
  Job(config::Run run, comm::Communicators ranks, const ModelBuilder& builder = build_model,
      InitialValues values = InitialValues::kDrawn, std::optional<at::ScalarType> type = {});
  Job(const Job&) = delete;  ///< its stages know where it is
  Job& operator=(const Job&) = delete;

  /// Forward and backward over the micro-batches of one global batch, gradient sums, update.
  /// A step whose gradient is not finite is skipped: no update. Under a dynamic loss scale and with
  /// --no-check-for-nan-in-loss-and-grad the report says so; else Error is thrown, as for a loss.
  StepReport train_step(const pipeline::Steps& steps, const optim::StepOptions& options);

  /// Mean losses over `batches` global batches; steps_of(i) gives the steps of batch i.
  std::map<std::string, double> evaluate(int batches,
                                         const std::function<pipeline::Steps(int batch)>& steps_of);

  /// Micro-batches per rank and step.
  [[nodiscard]] int num_microbatches() const { return executor_->schedule().microbatches; }
  [[nodiscard]] int data_rank() const;  ///< among the ranks that read other samples
  [[nodiscard]] int data_ranks() const;

  config::Run run;
  comm::Communicators ranks;
  Counters counters;
  Model model;

  /// Of all chunks. Between steps buffers().here() has what lies on this rank of their values.
  [[nodiscard]] std::vector<tensor::Parameter*> parameters() const;
  [[nodiscard]] optim::Optimizer& optimizer() { return *optimizer_; }
  [[nodiscard]] data_parallel::GradBuffers& buffers() { return *buffers_; }
  [[nodiscard]] pipeline::Executor& executor() { return *executor_; }
  [[nodiscard]] const at::TensorOptions& options() const { return options_; }

 private:
  struct Sum {
    double sum = 0, count = 0;
  };
  /// What the ranks together report; agreed on at the first reduction.
  struct Names {
    std::vector<std::string> tallies;
    std::map<std::string, std::int64_t> counts;  ///< with how many numbers each has
  };
  struct Sums {
    std::map<std::string, Sum> tallies;
    std::map<std::string, std::vector<double>> counts;
  };
  Sums reduce(const tensor::Report& local, Names& names);
  void agree_on_names(const tensor::Report& local, Names& names);
  /// The mean of nothing is its sum: 0.
  static std::map<std::string, double> means(const std::map<std::string, Sum>& sums);
  /// What the gradients of --calculate-per-token-loss are divided by.
  [[nodiscard]] double tokens_of(const std::map<std::string, Sum>& sums) const;
  void check_finite(const StepReport& report) const;

  at::TensorOptions options_;
  std::unique_ptr<data_parallel::GradBuffers> buffers_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<pipeline::Executor> executor_;
  Names train_names_, evaluation_names_;
};

/// Name of the collective that sums losses over all ranks.
inline constexpr std::string_view kLossSums = "losses";

/// dtype and device of a run's parameters; on CUDA the current device, which job::start has chosen.
at::TensorOptions tensor_options(const config::Run& run);

}  // namespace colonnade::job
