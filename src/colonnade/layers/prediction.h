// Multi-token prediction: one more layer behind the model predicts one token further.
// Source: Megatron's core/transformer/multi_token_prediction.py; DeepSeek-V3 2024.
#pragma once

#include "colonnade/layers/transformer_layer.h"
#include "colonnade/layers/whole_linear.h"

namespace colonnade::layers {

/// What the k-th further prediction at place i works with: what the batch has k places later, as int64 or
/// fp32 [b, s]. Where i + k is behind the end of the sequence, or in another document than i, the mask is 0.
struct Ahead {
  at::Tensor tokens, labels, mask;
  at::Tensor starts;  ///< bool, where a document begins, k places later; undefined: there is one
  at::Tensor left;    ///< bool, where i + k is in another document than i; undefined: nowhere
  at::Tensor count;   ///< sum of the mask over whole sequences

  /// Of k = 1 ... `depths`. Documents are told apart by a batch's attention mask or, without one, by its
  /// positions.
  static std::vector<Ahead> all(const tensor::Batch& batch, std::int64_t depths);
  /// Their tokens alone.
  static std::vector<at::Tensor> all_tokens(const tensor::Batch& batch, std::int64_t depths);
  /// They are written into a whole batch, so that it may be cut along the sequence, and all() finds them
  /// there; names of what to cut.
  static std::vector<std::string> put_into(tensor::Batch& whole, std::int64_t depths);
  /// What it calls the count of the k-th.
  static std::string count_name(std::int64_t k);
};

/// x = W [norm(word rows of tokens), norm(hidden)]; y = norm(layer(x)). The projection is whole on every
/// tensor rank, for the tokens that it has between the parallel stretches. With full recomputation by the
/// uniform method projection and layer are a stretch of their own; the block method leaves them, as
/// Megatron's.
class Prediction {
 public:
  /// `layer` numbers the layer behind those of the model.
  Prediction(const layout::PredictionParams& params, const config::Model& model, const Context& context,
             std::shared_ptr<const ops::RotaryTable> rotary, std::int64_t layer);
  /// `hidden` [s, b, h] (or [s / tp, b, h]), the normed output of the model or of the prediction before, and
  /// the tokens that are k places ahead [b, s] -> what the output layer reads, of the shape of `hidden`.
  [[nodiscard]] at::Tensor forward(const at::Tensor& hidden, const at::Tensor& tokens,
                                   tensor::Parameter& word, const tensor::Pass& pass);
  void add_parameters(std::vector<tensor::Parameter*>& all);
  void finish_step() { layer_.finish_step(); }

 private:
  Norm enorm_, hnorm_;
  WholeLinear eh_proj_;
  TransformerLayer layer_;
  Norm final_norm_;
  Residual dropout_;  ///< of the embedded tokens
  comm::Group tp_;
  bool sequence_parallel_;
  bool again_;    ///< projection and layer are made again in the backward pass
  double scale_;  ///< of embeddings
};

}  // namespace colonnade::layers
