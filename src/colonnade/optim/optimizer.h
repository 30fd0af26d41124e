// Optimizer step over this rank's shards of the flat buffers: 1/size of every bucket with the distributed
// optimizer, else all of it. Each parameter group (layout/optimizer_groups.h) has its update rule and
// multipliers. Source: Megatron's core/optimizer; Rajbhandari et al. 2020 (ZeRO-1).
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "colonnade/comm/group.h"
#include "colonnade/config/training.h"
#include "colonnade/data_parallel/grad_buffers.h"
#include "colonnade/layout/optimizer_groups.h"
#include "colonnade/layout/qk_clip.h"
#include "colonnade/optim/loss_scale.h"
#include "colonnade/optim/update_rule.h"

namespace colonnade::optim {

struct StepOptions {
  double learning_rate = 0;
  /// Rate of word embeddings and output layer (--decoupled-lr); unset: learning_rate.
  std::optional<double> decoupled_learning_rate = {};
  double weight_decay = 0;
  double grad_multiplier = 1;  ///< applied to the gradient before norm and clipping (per-token loss)
  bool count_zeros = false;
  /// Factors of the rows of matrices after the update, also after a skipped one (--qk-clip); equal on all
  /// ranks.
  layout::RowScales row_scales = {};
};

/// Outcome of a step, equal on all ranks.
struct StepResult {
  double grad_norm = 0;        ///< global L2 norm before clipping, loss scale removed
  std::int64_t num_zeros = 0;  ///< zero elements of the gradient, with count_zeros
  bool skipped = false;        ///< the norm was not finite: weights and optimizer state are unchanged
};

class Optimizer {
 public:
  /// `world`: all ranks of the model. `overrides` precede the groups of the settings
  /// (layout::optimizer_groups). Throws ConfigError on all ranks if one of them, or of --freeze-parameters,
  /// matches no parameter of any rank, or if all parameters are frozen. Communication: with such patterns one
  /// all-reduce of as many numbers, and that of UpdateRule::prepare.
  Optimizer(const config::Optimizer& settings, data_parallel::GradBuffers& buffers, comm::Group world,
            bool fp16, std::vector<layout::OptimizerGroup> overrides = {}, StageRanks stage = {});

  /// Computes the norm, clips (factor clip / (norm + 1e-6) if below 1), updates and all-gathers parameters. A
  /// gradient that is not finite updates nothing (Megatron does the same with a loss scale; without one it
  /// writes the gradient into the weights). Call after GradBuffers::finish(). Each element that is not frozen
  /// counts once in the norm, whatever the layout: float64 sums of squares, or with deterministic buffers
  /// exact_squares(), whose bits do not depend on the layout. Communication: one all-reduce of 2 numbers over
  /// all ranks, and that of exact_squares(). Main and model values of the rows in options.row_scales are
  /// scaled before the all-gather of parameters; frozen parameters are not.
  StepResult step(const StepOptions& options);

  /// L2 norm of all parameters, frozen ones too (--log-params-norm).
  double params_norm();

  [[nodiscard]] const LossScale& loss_scale() const { return scale_; }
  void set_loss_scale(const LossScale& scale) { scale_ = scale; }
  [[nodiscard]] std::int64_t steps() const { return steps_; }
  void set_steps(std::int64_t steps) { steps_ = steps; }

  /// Shards with their states, for checkpoints; none of frozen parameters. After writing new values into
  /// `main` or into the parameters, call adopt_main() or adopt_parameters().
  [[nodiscard]] std::vector<Segment>& segments() { return segments_; }
  void adopt_main();        ///< model values = main values, all-gathered over the replicas
  void adopt_parameters();  ///< main values = model values

 private:
  struct NormElements {
    at::Tensor grad;  ///< flat view of elements that this rank counts in norms; undefined if frozen
    at::Tensor model;
  };
  /// Segments that are updated in one pass, with equal numbers.
  struct UpdateList {
    config::OptimizerKind kind;
    layout::LrSchedule schedule;
    double lr_multiplier, weight_decay_multiplier, eps_multiplier;
    std::unique_ptr<UpdateRule> rule;
    UpdateScope scope;
  };
  void require_matches(std::size_t num_patterns);
  void make_segments();
  void make_update_lists(const StageRanks& stage);
  void fill_update_lists();
  void count_elements(const Segment& segment);
  [[nodiscard]] UpdateList* list_of(const layout::OptimizerGroup& group);
  std::vector<double> sum_over_ranks(std::vector<double> values, std::string_view what);
  void update(const StepOptions& options, double grad_scale);
  void scale_rows(const layout::RowScales& scales);

  config::Optimizer settings_;
  data_parallel::GradBuffers* buffers_;
  comm::Group world_;
  LossScale scale_;
  std::int64_t steps_ = 0;
  std::vector<layout::OptimizerGroup> groups_;
  std::vector<UpdateList> update_lists_;
  std::vector<Segment> segments_;
  std::vector<NormElements> counted_;
};

}  // namespace colonnade::optim
