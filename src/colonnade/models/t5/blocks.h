// Blocks of a T5, whose activations hold the sequences of encoder and decoder.
// Source: Raffel et al. 2020; Megatron's core/models/T5.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "colonnade/layers/transformer_layer.h"
#include "colonnade/models/gpt/embedding_block.h"
#include "colonnade/models/gpt/head_block.h"

namespace colonnade::models::t5 {

/// Activations between blocks concatenate both sequences, [t + s, b, h] ([t / tp + s / tp, b, h] with
/// sequence parallelism: the rank's shards of both). Encoder layers update the first rows, decoder layers the
/// last ones, computed from both. All stages thus have activations of one shape with one gradient, a stage
/// may begin at any layer, and one embedding table in the first stage serves both sequences. The price:
/// decoder rows pass through the encoder's stages, and every layer copies the rows that it does not update.

/// Concatenated embeddings of both sequences, kEncoderTokens [b, t] and kTokens [b, s].
class EmbeddingBlock final : public gpt::EmbeddingBlock {
 public:
  EmbeddingBlock(const config::Model& model, const config::Parallel& parallel,
                 const layers::Context& context);
  at::Tensor forward(const at::Tensor&, const tensor::Pass& pass) override;

 private:
  layers::Residual encoder_dropout_;
};

/// Relative position bias table of the encoder's or the decoder's layers on this rank. The first layer of a
/// stack on a rank holds it; other stages with layers of the stack hold copies (layout::HeldBy), whose
/// gradients are all-reduced.
struct RelativeBiasTable {
  /// Table of `layer`'s stack; a copy unless `layer` is the first layer of its stack in the model. Null
  /// without relative positions.
  RelativeBiasTable(const config::Model& model, const layers::Context& context, std::int64_t layer);
  std::unique_ptr<tensor::Parameter> owned;  ///< until its first reader takes ownership
  tensor::Parameter* table;
};

/// An encoder or decoder layer; copies the other sequence's rows unchanged.
class LayerBlock final : public tensor::Block {
 public:
  LayerBlock(const config::Model& model, const config::Parallel& parallel, const layers::Context& context,
             std::shared_ptr<const ops::RotaryTable> rotary, std::int64_t layer,
             RelativeBiasTable& bias_table);
  at::Tensor forward(const at::Tensor& x, const tensor::Pass& pass) override;
  std::vector<tensor::Parameter*> parameters() override;
  std::vector<tensor::Parameter*> shared_parameters() override;
  void finish_step() override { layer_.finish_step(); }

 private:
  bool in_encoder_;
  int sequence_shards_;
  std::unique_ptr<tensor::Parameter> own_table_;
  tensor::Parameter* table_;
  layers::TransformerLayer layer_;
};

/// GPT head over the decoder's rows.
class HeadBlock final : public tensor::Block {
 public:
  HeadBlock(const layers::Context& context, std::unique_ptr<gpt::HeadBlock> head)
      : sequence_shards_(context.sequence_part().parts), head_(std::move(head)) {}
  at::Tensor forward(const at::Tensor& x, const tensor::Pass& pass) override;
  std::vector<tensor::Parameter*> parameters() override { return head_->parameters(); }
  std::vector<tensor::Parameter*> shared_parameters() override { return head_->shared_parameters(); }

 private:
  int sequence_shards_;
  std::unique_ptr<gpt::HeadBlock> head_;
};

}  // namespace colonnade::models::t5
