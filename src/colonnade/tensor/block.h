// Block: the unit of a model that pipeline stages own and sharded data parallelism gathers, such as an
// embedding, a transformer layer or a head.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "colonnade/tensor/batch.h"
#include "colonnade/tensor/metric_sum.h"
#include "colonnade/tensor/parameter.h"

namespace colonnade::tensor {

/// Output of the last block.
enum class Output : std::uint8_t { kLoss, kLogits };

/// Key-value cache of the attention layers (inference only).
class KeyValueCache;

/// Choices of this rank's routers for one micro-batch, by the name of a router's weight: int64 [tokens, k],
/// distinct per token, before any is dropped. Routers record them here, or take them in place of their own.
struct RoutingChoices {
  bool replay = false;  ///< take the choices; false: record them
  std::map<std::string, at::Tensor> by_router;
};

/// Context of a forward pass, beyond the block's input.
struct Pass {
  const Batch& batch;
  bool training = true;  ///< enables dropout
  Output output = Output::kLoss;
  KeyValueCache* cache = nullptr;  ///< set during generation
  double grad_scale = 0;           ///< initial gradient of this micro-batch's losses
  Report* report = nullptr;        ///< metrics reported by blocks; null: none collected
  bool recomputing = false;        ///< recomputed forward pass: blocks update no statistics
  std::shared_ptr<RoutingChoices> routing = nullptr;  ///< of routers, recorded or replayed; null: neither
};

/// y = f(x, batch), independent of the pipeline. `x` is undefined for the first block of a model; activations
/// are [s, b, h] (s / tp with sequence parallelism). All ranks of a tensor-parallel group call forward in the
/// same order.
class Block {
 public:
  virtual ~Block() = default;
  virtual at::Tensor forward(const at::Tensor& x, const Pass& pass) = 0;
  /// Own parameters in order of use in the forward pass.
  virtual std::vector<Parameter*> parameters() = 0;
  /// Parameters of earlier blocks of this rank that this block also uses.
  virtual std::vector<Parameter*> shared_parameters() { return {}; }
  /// Called once per step when all gradients are complete; updates untrained state, such as the bias of a
  /// router. All ranks of a stage call it in the same order.
  virtual void finish_step() {}
};

/// The blocks of one virtual stage, in order.
struct Stage {
  std::vector<std::unique_ptr<Block>> blocks;
  bool first = false;  ///< holds the first block of the model
  bool last = false;   ///< holds the last block of the model

  /// Called before each block's forward; sharded data parallelism waits here for the parameter all-gather.
  std::function<void(Block&)> before_forward;
  /// Called after each block's forward with its input and output.
  std::function<void(Block&, const at::Tensor& x, const at::Tensor& y)> after_forward;

  at::Tensor forward(at::Tensor x, const Pass& pass) const;
  [[nodiscard]] std::vector<Parameter*> parameters() const;
  /// Parameters with spec.trained.
  [[nodiscard]] std::vector<Parameter*> trained_parameters() const;
  void finish_step() const;
};

}  // namespace colonnade::tensor
