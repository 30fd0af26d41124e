// Interface of an optimizer's arithmetic: how gradients and states change parameters. A new optimizer is a
// row of config/optimizers.cpp, a subclass here and a case of make_update_rule.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "colonnade/comm/group.h"
#include "colonnade/config/optimizers.h"
#include "colonnade/layout/mesh.h"
#include "colonnade/layout/optimizer_groups.h"
#include "colonnade/tensor/parameter.h"

namespace colonnade::optim {

class UpdateRule;

/// Shard of one parameter that this rank updates, with its optimizer states. Tensors are flat, of equal
/// length; their dtypes are fields of the buffers' config::Dtypes.
struct Segment {
  tensor::Parameter* parameter;
  std::int64_t begin;  ///< first element within the parameter's local part
  at::Tensor main;     ///< main_parameter, which is updated; `model` itself without Dtypes::has_main_copy()
  at::Tensor main_scale = {};  ///< of `main`; undefined if its dtype has no scale (optim/scaled.h)
  at::Tensor model;            ///< parameter: its own elements
  at::Tensor grad;             ///< main_gradient
  const layout::OptimizerGroup* group;
  bool is_primary = true;               ///< of the replicas that update the same shard, this is the first
  const UpdateRule* rule;               ///< of the group
  std::vector<at::Tensor> states;       ///< Dtypes::state(): one for each of rule->states()
  std::vector<at::Tensor> scales = {};  ///< of each state; undefined if its dtype has no scale

  [[nodiscard]] bool has_main_copy() const { return !main.is_same(model); }
  /// Destination of the rounded new values: `model`, undefined if the main parameters are the model's.
  [[nodiscard]] at::Tensor rounded_copy() const { return has_main_copy() ? model : at::Tensor(); }
};

/// Ranks of this rank's pipeline stage, which together hold its parameters and optimizer states.
struct StageRanks {
  comm::Group group;                               ///< default: a group of one
  std::vector<layout::Position> positions = {{}};  ///< of the members, in their order
};

/// Parameters of one update on this rank.
struct UpdateScope {
  std::vector<tensor::Parameter*> parameters;  ///< all, in the same order on all ranks of the stage
  std::vector<const Segment*> segments;        ///< this rank's shards of them; none of some parameters
  at::TensorOptions options;                   ///< dtype of main parameters, and device
};

/// Numbers of one update, the same for all elements of a list of segments.
struct UpdateStep {
  double learning_rate = 0;
  double weight_decay = 0;
  double eps_multiplier = 1;  ///< factor of the optimizer's epsilon
  double grad_scale = 1;      ///< factor of the gradients: clipping and loss scale
  std::int64_t number = 1;    ///< of this update, from 1
};

class UpdateRule {
 public:
  UpdateRule(config::OptimizerKind kind, const config::Optimizer& settings)
      : states_(config::optimizer_states(kind, settings)) {}
  virtual ~UpdateRule() = default;
  UpdateRule(const UpdateRule&) = delete;
  UpdateRule& operator=(const UpdateRule&) = delete;

  /// Names of the states in checkpoints.
  [[nodiscard]] std::span<const std::string_view> states() const { return states_; }
  /// States of `numel` elements in Dtypes::state() before the first update: zeros.
  [[nodiscard]] std::vector<at::Tensor> initial_states(std::int64_t numel, const config::Dtypes& dtypes,
                                                       const at::Device& device) const;

  /// Called once, before the first update. Communication: that of the rule.
  virtual void prepare(const UpdateScope& /*scope*/) {}

  /// Writes new values into `main`, `states` and the rounded copies of the segments, all of which have this
  /// rule. Communication: none for rules that update each element by itself; Muon exchanges matrices, so all
  /// ranks of a stage call it, also with an empty list.
  virtual void update(const std::vector<const Segment*>& segments, const UpdateStep& step) const = 0;

 private:
  std::span<const std::string_view> states_;
};

/// `stage`: for rules that exchange matrices.
std::unique_ptr<UpdateRule> make_update_rule(config::OptimizerKind kind, const config::Optimizer& settings,
                                             const StageRanks& stage = {});

}  // namespace colonnade::optim
