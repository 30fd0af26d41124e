// Multi-token prediction (MTP): each additional layer after the model predicts one more token ahead.
// Source: Megatron's core/transformer/multi_token_prediction.py; DeepSeek-V3 2024.
#pragma once

#include "colonnade/layers/replicated_linear.h"
#include "colonnade/layers/transformer_layer.h"

namespace colonnade::layers {

/// Inputs and targets of the k-th MTP layer: the batch shifted left by k, int64 or fp32 [b, s]. The mask is 0
/// where i + k lies beyond the sequence or in another document than i.
struct MtpTargets {
  at::Tensor tokens, labels, mask;
  at::Tensor starts;  ///< bool, document starts shifted by k; undefined with one document
  at::Tensor left;    ///< bool, i + k is in another document than i; undefined: nowhere
  at::Tensor count;   ///< sum of the mask over full sequences

  /// Targets of k = 1 ... `depths`. Document boundaries come from the batch's documents or, without them, its
  /// position ids.
  static std::vector<MtpTargets> all(const tensor::Batch& batch, std::int64_t depths);
  /// Shifted tokens only.
  static std::vector<at::Tensor> all_tokens(const tensor::Batch& batch, std::int64_t depths);
  /// Writes the targets of depth k under the keys {field, k} (tensor::BatchKey) into a batch of full
  /// sequences before it is sharded along the sequence; all() finds them there.
  static void add_to_batch(tensor::Batch& whole, std::int64_t depths);
};

/// x = W [norm(embedding of tokens), norm(hidden)]; y = norm(layer(x)). Embeddings and x have the dtype of
/// the residual stream. The projection is replicated over tp and applied to the tokens that the rank holds
/// outside tensor-parallel regions. With full uniform recomputation, projection and layer form a recomputed
/// span of their own; the block method leaves them out, as Megatron's.
class MtpLayer {
 public:
  /// `layer`: layer number, counted on from the model's layers.
  MtpLayer(const layout::MtpLayerParams& params, const config::Model& model, const Context& context,
           std::shared_ptr<const ops::RotaryTable> rotary, std::int64_t layer);
  /// `hidden` [s, b, h] (or [s / tp, b, h]), the normed output of the model or of the previous MTP layer, and
  /// `tokens` [b, s] shifted by k -> input of the output layer, of the shape of `hidden`.
  [[nodiscard]] at::Tensor forward(const at::Tensor& hidden, const at::Tensor& tokens,
                                   tensor::Parameter& word, const tensor::Pass& pass);
  void add_parameters(std::vector<tensor::Parameter*>& all);
  void finish_step() { layer_.finish_step(); }

 private:
  Norm enorm_, hnorm_;
  ReplicatedLinear eh_proj_;
  TransformerLayer layer_;
  Norm final_norm_;
  Residual dropout_;  ///< dropout of the embedded tokens
  comm::Group tp_;
  bool sequence_parallel_;
  bool recompute_;  ///< projection and layer are recomputed in the backward pass
  double scale_;    ///< factor on embeddings
  at::ScalarType residual_type_;
};

}  // namespace colonnade::layers
