// Adam(W) and SGD over this rank's shards of the flat buffers: 1/size of every bucket with the distributed
// optimizer, else all of it.
// Source: Megatron's core/optimizer; Rajbhandari et al. 2020 (ZeRO-1); Loshchilov & Hutter 2019.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "colonnade/comm/group.h"
#include "colonnade/config/training.h"
#include "colonnade/data_parallel/grad_buffers.h"
#include "colonnade/optim/loss_scale.h"

namespace colonnade::optim {

/// Shard of one parameter that this rank updates, with its optimizer state. Tensors are flat, of equal
/// length, fp32 (float64 for float64 parameters).
struct Segment {
  tensor::Parameter* parameter;
  std::int64_t begin;  ///< first element within the parameter's local part
  at::Tensor main;     ///< main parameter that is updated; `model` itself unless that is bf16 or fp16
  at::Tensor model;    ///< the parameter's own elements
  at::Tensor grad;
  at::Tensor exp_avg;     ///< Adam's first moment, or SGD's momentum; undefined without momentum
  at::Tensor exp_avg_sq;  ///< Adam's second moment; undefined with SGD
};

struct StepOptions {
  double learning_rate = 0;
  double weight_decay = 0;
  double grad_multiplier = 1;  ///< applied to the gradient before norm and clipping (per-token loss)
  bool count_zeros = false;
};

/// Outcome of a step, equal on all ranks.
struct StepResult {
  double grad_norm = 0;        ///< global L2 norm before clipping, loss scale removed
  std::int64_t num_zeros = 0;  ///< zero elements of the gradient, with count_zeros
  bool skipped = false;        ///< the norm was not finite: weights and optimizer state are unchanged
};

class Optimizer {
 public:
  /// `world`: all ranks of the model.
  Optimizer(const config::Optimizer& settings, data_parallel::GradBuffers& buffers, comm::Group world,
            bool fp16);

  /// Computes the norm, clips (factor clip / (norm + 1e-6) if below 1), updates and all-gathers parameters. A
  /// gradient that is not finite updates nothing (Megatron does the same with a loss scale; without one it
  /// writes the gradient into the weights). Call after GradBuffers::finish(). Each element counts once in the
  /// norm, whatever the layout: float64 sums of squares, or with deterministic buffers exact_squares(), whose
  /// bits do not depend on the layout. Communication: one all-reduce of 2 numbers over all ranks, and that of
  /// exact_squares().
  StepResult step(const StepOptions& options);

  /// L2 norm of all parameters (--log-params-norm).
  double params_norm();

  [[nodiscard]] const LossScale& loss_scale() const { return scale_; }
  void set_loss_scale(const LossScale& scale) { scale_ = scale; }
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

  /// Shards with their state, for checkpoints. After writing new values into `main` or into the parameters,
  /// call adopt_main() or adopt_parameters().
  [[nodiscard]] std::vector<Segment>& segments() { return segments_; }
  void adopt_main();        ///< model values = main values, all-gathered over the replicas
  void adopt_parameters();  ///< main values = model values

 private:
  struct NormElements {
    at::Tensor grad;  ///< flat view of elements that this rank counts in norms
    at::Tensor model;
  };
  void make_segments(data_parallel::GradBuffers& buffers);
  void count_elements(const Segment& segment);
  std::vector<double> sum_over_ranks(std::vector<double> values);
  [[nodiscard]] bool decays(const tensor::Parameter& parameter) const;
  void update(const StepOptions& options, double grad_scale);

  config::Optimizer settings_;
  data_parallel::GradBuffers* buffers_;
  comm::Group world_;
  LossScale scale_;
  std::int64_t steps_ = 0;
  std::vector<Segment> segments_;
  std::vector<NormElements> counted_;
};

}  // namespace colonnade::optim
