// The unit that a pipeline stage owns and that data parallelism gathers: embedding, transformer
// layer, head, or whatever a user's model is made of.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "colonnade/tensor/parameter.h"
#include "colonnade/tensor/tally.h"

namespace colonnade::tensor {

/// What a batch of one sequence is of a sample, where as many ranks share a sequence as its length needs
/// (--hybrid-context-parallel).
struct Share {
  int ranks = 0;            ///< that share it; 0: those of the layout, and the batch has whole samples
  std::int64_t tokens = 0;  ///< of it; those behind them fill it up and count nowhere
  std::int64_t begin = 0;   ///< its first one's place in the sample
  std::int64_t sample = 1;  ///< tokens of the sample
};

/// One micro-batch: named tensors, on the device when a block sees them. GPT models read `tokens` [b, s],
/// `position_ids` [b, s] (optional), `labels` [b, s], `loss_mask` [b, s], `samples` [b] (global sample
/// numbers); where ranks share sequences s counts this rank's tokens, positions are always there, and
/// `attention_mask` [b, 1, S, S] is of whole sequences.
class Batch {
 public:
  Batch() = default;
  explicit Batch(std::map<std::string, at::Tensor> tensors) : tensors_(std::move(tensors)) {}
  /// Throws Error naming the key and those that exist.
  [[nodiscard]] const at::Tensor& at(const std::string& key) const;
  /// Undefined where the key is missing.
  [[nodiscard]] at::Tensor find(const std::string& key) const;
  void set(const std::string& key, at::Tensor tensor) { tensors_[key] = std::move(tensor); }
  /// Given only where layers have groups of all sizes (layers::ContextRanks::by_size).
  [[nodiscard]] const Share& share() const { return share_; }
  void set_share(const Share& share) { share_ = share; }
  /// The same with every tensor on `device`; those that are there already are shared.
  [[nodiscard]] Batch to(at::Device device) const;

 private:
  std::map<std::string, at::Tensor> tensors_;
  Share share_;
};

/// What the last block gives.
enum class Output : std::uint8_t { kLoss, kLogits };

/// Keys and values of earlier tokens, kept by the attention blocks of a model (inference only).
class KeyValueCache;

/// What a block may know of the pass it takes part in, besides its input.
struct Pass {
  const Batch& batch;
  bool training = true;  ///< dropout on
  Output output = Output::kLoss;
  KeyValueCache* cache = nullptr;  ///< set while generating
  double grad_scale = 0;           ///< what the gradient of a loss of this micro-batch starts from
  Report* report = nullptr;        ///< where blocks add what they report; null: nobody asks
  bool again = false;              ///< a forward pass repeated for its backward pass: blocks count nothing
};

/// y = f(x, batch). Knows nothing of the pipeline. `x` is undefined for the first block of a model;
/// blocks hand on [s, b, h] activations (s / tp with sequence parallelism). Every rank of a tensor
/// group calls forward in the same order.
class Block {
 public:
  virtual ~Block() = default;
  virtual at::Tensor forward(const at::Tensor& x, const Pass& pass) = 0;
  /// In order of use in the forward pass.
  virtual std::vector<Parameter*> parameters() = 0;
  /// Those of earlier blocks of this rank that it computes with too.
  virtual std::vector<Parameter*> reads() { return {}; }
  /// Called once a step, when all its gradients are there: blocks move state that is not trained. All ranks
  /// of a stage call it in the same order.
  virtual void finish_step() {}
};

/// The blocks of one virtual stage, in order.
struct Stage {
  std::vector<std::unique_ptr<Block>> blocks;
  bool first = false;  ///< holds the first block of the model
  bool last = false;   ///< holds the last block of the model

  /// Called before each block's forward; data parallelism waits there for gathered parameters.
  std::function<void(Block&)> before_forward;
  /// Called after it, with what the block read and what it made.
  std::function<void(Block&, const at::Tensor& x, const at::Tensor& y)> after_forward;

  at::Tensor forward(at::Tensor x, const Pass& pass) const;
  [[nodiscard]] std::vector<Parameter*> parameters() const;
  /// Those that are trained.
  [[nodiscard]] std::vector<Parameter*> trained_parameters() const;
  void finish_step() const;
};

}  // namespace colonnade::tensor
