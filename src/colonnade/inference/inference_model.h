// Model for inference: one rank's stages with weights, without gradients and optimizer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "colonnade/checkpoint/load.h"
#include "colonnade/comm/communicators.h"
#include "colonnade/config/run.h"
#include "colonnade/job/model.h"
#include "colonnade/tensor/kv_cache.h"

namespace colonnade::inference {

/// Options of a forward pass.
struct ForwardOptions {
  tensor::Output output = tensor::Output::kLogits;
  tensor::KeyValueCache* cache = nullptr;  ///< KV cache; the caller advances it
  bool last_token = false;                 ///< logits of the last token of each row only
};

/// Sequence parallelism is disabled: it saves memory in training only, and a single token cannot be sharded.
class InferenceModel {
 public:
  /// Builds this rank's stages and reads its shards of the weights from a checkpoint of any layout. `run` is
  /// complete (job::prepare); the CUDA device is the current one. Throws DataError if a tensor is missing or
  /// has another shape. Collective.
  InferenceModel(config::Run run, comm::Communicators ranks, const checkpoint::CheckpointReader& source);

  /// Runs a batch through all stages. Activations [s, b, h] are sent between pipeline ranks without waiting,
  /// so consecutive batches overlap. Returns fp32 logits [b, s, vocabulary] ([b, 1, vocabulary] with
  /// last_token) or the loss [b, s] of the batch's labels on ranks of the last stage, an undefined tensor on
  /// others. Collective over tp and pp.
  at::Tensor forward(const tensor::Batch& batch, const ForwardOptions& options);

  /// Rank that samples and reports for all: first tensor and data rank of the last stage.
  [[nodiscard]] int leader() const;
  [[nodiscard]] bool is_leader() const { return ranks_.rank() == leader(); }
  /// Broadcasts the leader's `tensor` to all ranks.
  void broadcast_from_leader(const at::Tensor& tensor, std::string_view what);

  [[nodiscard]] const config::Run& run() const { return run_; }
  [[nodiscard]] const job::Model& model() const { return model_; }
  [[nodiscard]] comm::Communicators& ranks() { return ranks_; }
  /// dtype and device of activations.
  [[nodiscard]] const at::TensorOptions& options() const { return options_; }

 private:
  at::Tensor forward_chunk(std::size_t chunk, at::Tensor x, const tensor::Pass& pass, bool last_token) const;
  at::Tensor receive(int stage, const tensor::Batch& batch);

  config::Run run_;
  comm::Communicators ranks_;
  comm::Group pp_;
  schedule::Placement placement_;
  at::TensorOptions options_;
  job::Model model_;
  comm::Work pending_send_;
};

/// Maximum sequence length that the model's positions allow.
std::int64_t longest_sequence(const config::Model& model);

}  // namespace colonnade::inference
