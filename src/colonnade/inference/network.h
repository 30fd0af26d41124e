// A model that only computes: the stages of one rank with weights, without gradients and optimizer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "colonnade/checkpoint/load.h"
#include "colonnade/comm/communicators.h"
#include "colonnade/config/run.h"
#include "colonnade/job/model.h"
#include "colonnade/tensor/kv_cache.h"

namespace colonnade::inference {

/// What one pass computes.
struct Want {
  tensor::Output output = tensor::Output::kLogits;
  tensor::KeyValueCache* cache = nullptr;  ///< keys and values of earlier tokens; the caller advances it
  bool last_token = false;                 ///< logits of the last token of each row only
};

/// Sequence parallelism saves memory of training only and is left off here: one token cannot be cut.
class Network {
 public:
  /// Builds this rank's stages and reads its part of the weights, whatever layout wrote them. `run` is
  /// complete (job::prepare); the CUDA device is the current one. Throws DataError where a tensor is
  /// missing or has another shape. Collective.
  Network(config::Run run, comm::Communicators ranks, const checkpoint::Source& source);

  /// One batch through all stages. Activations [s, b, h] travel between pipeline ranks; sends are not
  /// waited for, so that batches given one after the other overlap on the ranks. Gives logits
  /// [b, s, vocabulary] in fp32 ([b, 1, vocabulary] with last_token) or the loss [b, s] of the batch's
  /// labels on ranks of the last stage, an undefined tensor on others. Collective over tp and pp.
  at::Tensor forward(const tensor::Batch& batch, const Want& want);

  /// The rank that speaks for all: of the last stage, the first of its tensor and data groups.
  [[nodiscard]] int speaker() const;
  [[nodiscard]] bool is_speaker() const { return ranks_.rank() == speaker(); }
  /// Everybody gets the speaker's `tensor`.
  void tell(const at::Tensor& tensor, std::string_view what);

  [[nodiscard]] const config::Run& run() const { return run_; }
  [[nodiscard]] const job::Model& model() const { return model_; }
  [[nodiscard]] comm::Communicators& ranks() { return ranks_; }
  [[nodiscard]] const at::TensorOptions& options() const { return options_; }

 private:
  at::Tensor pass_chunk(std::size_t chunk, at::Tensor x, const tensor::Pass& pass, bool last_token) const;
  at::Tensor receive(int stage, const tensor::Batch& batch);

  config::Run run_;
  comm::Communicators ranks_;
  comm::Group pp_;
  schedule::Placement placement_;
  at::TensorOptions options_;
  job::Model model_;
  comm::Work sent_;
};

/// The longest sequence that the model's positions allow.
std::int64_t longest_sequence(const config::Model& model);

}  // namespace colonnade::inference
