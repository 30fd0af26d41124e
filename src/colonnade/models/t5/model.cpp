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

/// The rows of the two sequences in what blocks hand on.
struct SideBySide {
  SideBySide(const at::Tensor& x, const tensor::Pass& pass, int parts) {
    const std::int64_t rows = pass.batch.at("encoder_tokens").size(1) / parts;
    encoder = x.narrow(0, 0, rows);
    decoder = x.narrow(0, rows, x.size(0) - rows);
  }
  at::Tensor encoder, decoder;
};

/// The rows of both sequences.
class EmbeddingBlock final : public gpt::EmbeddingBlock {
 public:
  using gpt::EmbeddingBlock::EmbeddingBlock;
  at::Tensor forward(const at::Tensor&, const tensor::Pass& pass) override {
    return at::cat({embedding_.forward_encoder(pass), embedding_.forward(pass)});
  }
};

/// The table of distances that the layers of the encoder, or of the decoder, read on this rank.
struct Distances {
  std::unique_ptr<tensor::Parameter> made;  ///< until its first reader takes it
  tensor::Parameter* table = nullptr;
};

/// A layer of either, which leaves the other sequence's rows as they are.
class LayerBlock final : public tensor::Block {
 public:
  LayerBlock(const config::Model& model, const config::Parallel& parallel, const layers::Context& context,
             std::shared_ptr<const ops::RotaryTable> rotary, std::int64_t layer, Distances& distances)
      : of_encoder_(layer < model.encoder_num_layers),
        parts_(context.sequence_part().parts),
        own_table_(std::move(distances.made)),
        table_(distances.table),
        layer_(layout::layer_params(model, parallel, layer), model, context, std::move(rotary), layer,
               {.causal = !of_encoder_,
                .mask = of_encoder_ ? "encoder_padding" : "attention_mask",
                .bias = {distances.table,
                         {.buckets = model.relative_attention_num_buckets,
                          .maximum = model.relative_attention_max_distance,
                          .both_ways = of_encoder_}}}) {}

  at::Tensor forward(const at::Tensor& x, const tensor::Pass& pass) override {
    const SideBySide rows(x, pass, parts_);
    if (of_encoder_) return at::cat({layer_.forward(rows.encoder, pass), rows.decoder});
    return at::cat({rows.encoder, layer_.forward(rows.decoder, rows.encoder, pass)});
  }
  std::vector<tensor::Parameter*> parameters() override {
    std::vector<tensor::Parameter*> all;
    layers::collect(all, {own_table_.get()});
    const auto own = layer_.parameters();
    all.insert(all.end(), own.begin(), own.end());
    return all;
  }
  std::vector<tensor::Parameter*> reads() override {
    if (table_ == nullptr || own_table_) return {};
    return {table_};
  }
  void finish_step() override { layer_.finish_step(); }

 private:
  bool of_encoder_;
  int parts_;
  std::unique_ptr<tensor::Parameter> own_table_;
  tensor::Parameter* table_;
  layers::TransformerLayer layer_;
};

/// The end of a GPT over the decoder's rows.
class HeadBlock final : public tensor::Block {
 public:
  HeadBlock(const config::Model& model, const config::Parallel& parallel, const layers::Context& context,
            tensor::Parameter* word)
      : parts_(context.sequence_part().parts),
        head_(model, parallel, context,
              std::make_unique<gpt::FinalStates>(model, parallel, context, nullptr, nullptr), word) {}
  at::Tensor forward(const at::Tensor& x, const tensor::Pass& pass) override {
    return head_.forward(SideBySide(x, pass, parts_).decoder, pass);
  }
  std::vector<tensor::Parameter*> parameters() override { return head_.parameters(); }
  std::vector<tensor::Parameter*> reads() override { return head_.reads(); }

 private:
  int parts_;
  gpt::HeadBlock head_;
};

/// `first`: the first layer of the kind in the model. Other stages that have such layers hold copies.
Distances distances_of(const config::Model& model, const layers::Context& context, std::int64_t layer) {
  const bool encoder = layer < model.encoder_num_layers;
  Distances distances{.made = context.make(layout::relative_bias(model, encoder))};
  distances.table = distances.made.get();
  if (distances.table != nullptr)
    distances.table->is_copy = layer != (encoder ? 0 : model.encoder_num_layers);
  return distances;
}

}  // namespace

std::vector<tensor::Stage> build(const std::vector<layout::StageBlocks>& blocks, const config::Model& model,
                                 const config::Parallel& parallel, const layers::Context& context,
                                 const config::Training& training) {
  std::shared_ptr<const ops::RotaryTable> rotary;
  if (model.rotary()) {
    const std::int64_t length =
        std::max({training.seq_length, training.decoder_seq_length, model.max_position_embeddings});
    rotary =
        std::make_shared<const ops::RotaryTable>(ops::rotary_table(model, length, context.options.device()));
  }
  const layout::FirstReaders first = layout::first_readers(model, blocks);
  std::vector<tensor::Stage> built;
  tensor::Parameter* word = nullptr;
  Distances of_encoder, of_decoder;
  for (const layout::StageBlocks& part : blocks) {
    tensor::Stage& stage = built.emplace_back();
    if (part.embedding) {
      auto block = std::make_unique<EmbeddingBlock>(model, parallel, context);
      word = block->word();
      stage.blocks.push_back(std::move(block));
    }
    layers::Blocks stack;
    for (std::int64_t i = part.first_layer; i < part.first_layer + part.num_layers; ++i) {
      Distances& distances = i < model.encoder_num_layers ? of_encoder : of_decoder;
      if (i == first.encoder || i == first.decoder) distances = distances_of(model, context, i);
      stack.push_back(std::make_unique<LayerBlock>(model, parallel, context, rotary, i, distances));
    }
    layers::append_with_recomputation(stage.blocks, std::move(stack), context.recompute);
    if (part.head) stage.blocks.push_back(std::make_unique<HeadBlock>(model, parallel, context, word));
    stage.first = part.embedding;
    stage.last = part.head;
  }
  return built;
}

}  // namespace colonnade::models::t5
