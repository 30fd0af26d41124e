// Adam(W) and SGD over the stretches of the flat buffers that this rank owns. With the distributed
// optimizer these are 1/size of every bucket, otherwise all of it; the code is the same.
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

/// A stretch of one parameter that this rank updates, with its optimizer state. Tensors are flat
/// views of equal length, fp32 (float64 for float64 parameters).
struct Segment {
  tensor::Parameter* parameter;
  std::int64_t begin;  ///< first element within the parameter's local part
  at::Tensor main;     ///< the value that is updated; the parameter itself unless it is bf16 or fp16
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

/// What a step did, equal on all ranks.
struct StepResult {
  double grad_norm = 0;        ///< global L2 norm before clipping, loss scale removed
  std::int64_t num_zeros = 0;  ///< zero elements of the gradient, when asked for
  bool skipped = false;        ///< the norm was not finite: weights and optimizer state are as before
};

class Optimizer {
 public:
  /// `world`: all ranks of the model.
  Optimizer(const config::Optimizer& settings, data_parallel::GradBuffers& buffers, comm::Group world,
            bool fp16);

  /// Norm, clipping (coefficient clip / (norm + 1e-6) where below 1), update, and the gather of the
  /// parameters. A gradient that is not finite updates nothing (Megatron does the same under a loss scale,
  /// and without one writes it into the weights). Call after GradBuffers::finish(). Each element counts once
  /// in the norm, whatever the layout: its owner's float64 sum of squares; with deterministic buffers
  /// exact_squares(), whose bits do not depend on the layout. Communication: one sum of 2 numbers over all
  /// ranks, and what exact_squares() sends, so all have the same norm.
  StepResult step(const StepOptions& options);

  /// L2 norm of all parameters (--log-params-norm).
  double params_norm();

  [[nodiscard]] const LossScale& loss_scale() const { return scale_; }
  void set_loss_scale(const LossScale& scale) { scale_ = scale; }
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

  /// The state, for checkpoints. After new values were written into `main` or into the parameters
  /// call adopt_main() or adopt_parameters().
  [[nodiscard]] std::vector<Segment>& segments() { return segments_; }
  void adopt_main();        ///< model values = main values, gathered over the replicas
  void adopt_parameters();  ///< main values = model values

 private:
  struct Counted {
    at::Tensor grad;  ///< flat view of elements that this rank counts in the norm
    at::Tensor model;
  };
  void cut_segments(data_parallel::GradBuffers& buffers);
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
  std::vector<Counted> counted_;
};

}  // namespace colonnade::optim
