// See model.h.
#include "colonnade/models/t5/model.h"

#include <ATen/ops/cat.h>

#include <algorithm>

#include "colonnade/layers/recompute.h"
#include "colonnade/layers/transformer_layer.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/models/gpt/embedding_block.h"
#include "colonnade/models/gpt/head_block.h"

namespace colonnade::models::t5 {
namespace {

/// Encoder and decoder rows of an activation.
struct PackedSequences {
  PackedSequences(const at::Tensor& x, const tensor::Pass& pass, int shards) {
    const std::int64_t rows = pass.batch.at("encoder_tokens").size(1) / shards;
    encoder = x.narrow(0, 0, rows);
    decoder = x.narrow(0, rows, x.size(0) - rows);
  }
  at::Tensor encoder, decoder;
};

/// Concatenated embeddings of both sequences.
class EmbeddingBlock final : public gpt::EmbeddingBlock {
 public:
  using gpt::EmbeddingBlock::EmbeddingBlock;
  at::Tensor forward(const at::Tensor&, const tensor::Pass& pass) override {
    return at::cat({embedding_.forward_encoder(pass), embedding_.forward(pass)});
  }
};

/// Relative position bias table of the encoder's or the decoder's layers on this rank.
struct RelativeBiasTable {
  std::unique_ptr<tensor::Parameter> owned;  ///< until its first reader takes ownership
  tensor::Parameter* table = nullptr;
};

/// An encoder or decoder layer; copies the other sequence's rows unchanged.
class LayerBlock final : public tensor::Block {
 public:
  LayerBlock(const config::Model& model, const config::Parallel& parallel, const layers::Context& context,
             std::shared_ptr<const ops::RotaryTable> rotary, std::int64_t layer,
             RelativeBiasTable& bias_table)
      : in_encoder_(layer < model.encoder_num_layers),
        sequence_shards_(context.sequence_part().parts),
        own_table_(std::move(bias_table.owned)),
        table_(bias_table.table),
        layer_(layout::layer_params(model, parallel, layer), model, context, std::move(rotary), layer,
               {.causal = !in_encoder_,
                .mask = in_encoder_ ? "encoder_padding" : "attention_mask",
                .bias = {bias_table.table,
                         {.buckets = model.relative_attention_num_buckets,
                          .max_distance = model.relative_attention_max_distance,
                          .bidirectional = in_encoder_}}}) {}

  at::Tensor forward(const at::Tensor& x, const tensor::Pass& pass) override {
    const PackedSequences rows(x, pass, sequence_shards_);
    if (in_encoder_) return at::cat({layer_.forward(rows.encoder, pass), rows.decoder});
    return at::cat({rows.encoder, layer_.forward(rows.decoder, rows.encoder, pass)});
  }
  std::vector<tensor::Parameter*> parameters() override {
    std::vector<tensor::Parameter*> all;
    layers::collect(all, {own_table_.get()});
    const auto own = layer_.parameters();
    all.insert(all.end(), own.begin(), own.end());
    return all;
  }
  std::vector<tensor::Parameter*> shared_parameters() override {
    if (table_ == nullptr || own_table_) return {};
    return {table_};
  }
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
  HeadBlock(const config::Model& model, const config::Parallel& parallel, const layers::Context& context,
            tensor::Parameter* word)
      : sequence_shards_(context.sequence_part().parts),
        head_(model, parallel, context,
              std::make_unique<gpt::FinalStates>(model, parallel, context, nullptr, nullptr), word) {}
  at::Tensor forward(const at::Tensor& x, const tensor::Pass& pass) override {
    return head_.forward(PackedSequences(x, pass, sequence_shards_).decoder, pass);
  }
  std::vector<tensor::Parameter*> parameters() override { return head_.parameters(); }
  std::vector<tensor::Parameter*> shared_parameters() override { return head_.shared_parameters(); }

 private:
  int sequence_shards_;
  gpt::HeadBlock head_;
};

/// Table of `layer`'s stack; a copy unless `layer` is the first layer of its stack in the model.
RelativeBiasTable relative_bias_table(const config::Model& model, const layers::Context& context,
                                      std::int64_t layer) {
  const bool encoder = layer < model.encoder_num_layers;
  RelativeBiasTable bias_table{.owned = context.make(layout::relative_bias(model, encoder))};
  bias_table.table = bias_table.owned.get();
  if (bias_table.table != nullptr)
    bias_table.table->is_tied_copy = layer != (encoder ? 0 : model.encoder_num_layers);
  return bias_table;
}

}  // namespace

std::vector<tensor::Stage> build(const std::vector<layout::StageBlocks>& blocks, const config::Model& model,
                                 const config::Parallel& parallel, const layers::Context& context,
                                 const config::Training& training) {
  std::shared_ptr<const ops::RotaryTable> rotary;
  if (model.has_rotary()) {
    const std::int64_t length =
        std::max({training.seq_length, training.decoder_seq_length, model.max_position_embeddings});
    rotary =
        std::make_shared<const ops::RotaryTable>(ops::rotary_table(model, length, context.options.device()));
  }
  const layout::FirstReaders first = layout::first_readers(model, blocks);
  std::vector<tensor::Stage> built;
  tensor::Parameter* word = nullptr;
  RelativeBiasTable encoder_table, decoder_table;
  for (const layout::StageBlocks& stage_blocks : blocks) {
    tensor::Stage& stage = built.emplace_back();
    if (stage_blocks.embedding) {
      auto block = std::make_unique<EmbeddingBlock>(model, parallel, context);
      word = block->word();
      stage.blocks.push_back(std::move(block));
    }
    layers::Blocks stack;
    for (std::int64_t i = stage_blocks.first_layer; i < stage_blocks.first_layer + stage_blocks.num_layers;
         ++i) {
      RelativeBiasTable& bias_table = i < model.encoder_num_layers ? encoder_table : decoder_table;
      if (i == first.encoder || i == first.decoder) bias_table = relative_bias_table(model, context, i);
      stack.push_back(std::make_unique<LayerBlock>(model, parallel, context, rotary, i, bias_table));
    }
    layers::append_with_recomputation(stage.blocks, std::move(stack), context.recompute);
    if (stage_blocks.head)
      stage.blocks.push_back(std::make_unique<HeadBlock>(model, parallel, context, word));
    stage.first = stage_blocks.embedding;
    stage.last = stage_blocks.head;
  }
  return built;
}

}  // namespace colonnade::models::t5
