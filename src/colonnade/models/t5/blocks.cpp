// See blocks.h.
#include "colonnade/models/t5/blocks.h"

#include <ATen/ops/cat.h>

#include "colonnade/layout/params/gpt.h"

namespace colonnade::models::t5 {
namespace {

/// Encoder and decoder rows of an activation.
struct PackedSequences {
  PackedSequences(const at::Tensor& x, const tensor::Pass& pass, int shards) {
    const std::int64_t rows = pass.batch.at(tensor::Field::kEncoderTokens).size(1) / shards;
    encoder = x.narrow(0, 0, rows);
    decoder = x.narrow(0, rows, x.size(0) - rows);
  }
  at::Tensor encoder, decoder;
};

}  // namespace

EmbeddingBlock::EmbeddingBlock(const config::Model& model, const config::Parallel& parallel,
                               const layers::Context& context)
    : gpt::EmbeddingBlock(model, parallel, context),
      encoder_dropout_(word()->spec.name + " of the encoder", model.hidden_dropout, context) {}

at::Tensor EmbeddingBlock::forward(const at::Tensor&, const tensor::Pass& pass) {
  const at::Tensor& tokens = pass.batch.at(tensor::Field::kEncoderTokens);
  return at::cat({embedding_.forward(tokens, encoder_dropout_, pass), embedding_.forward(pass)});
}

RelativeBiasTable::RelativeBiasTable(const config::Model& model, const layers::Context& context,
                                     std::int64_t layer)
    : owned(context.make(layout::relative_bias(model, layer < model.encoder_num_layers))),
      table(owned.get()) {
  if (table != nullptr) table->is_tied_copy = layer != 0 && layer != model.encoder_num_layers;
}

LayerBlock::LayerBlock(const config::Model& model, const config::Parallel& parallel,
                       const layers::Context& context, std::shared_ptr<const ops::RotaryTable> rotary,
                       std::int64_t layer, RelativeBiasTable& bias_table)
    : in_encoder_(layer < model.encoder_num_layers),
      sequence_shards_(context.sequence_part().parts),
      own_table_(std::move(bias_table.owned)),
      table_(bias_table.table),
      layer_(layout::layer_params(model, parallel, layer), model, context, std::move(rotary), layer,
             {.causal = !in_encoder_,
              .padding = in_encoder_ ? std::optional<tensor::BatchKey>(tensor::Field::kEncoderPadding)
                                     : std::nullopt,
              .bias = {bias_table.table,
                       {.buckets = model.relative_attention_num_buckets,
                        .max_distance = model.relative_attention_max_distance,
                        .bidirectional = in_encoder_}}}) {}

at::Tensor LayerBlock::forward(const at::Tensor& x, const tensor::Pass& pass) {
  const PackedSequences rows(x, pass, sequence_shards_);
  if (in_encoder_) return at::cat({layer_.forward(rows.encoder, pass), rows.decoder});
  return at::cat({rows.encoder, layer_.forward(rows.decoder, rows.encoder, pass)});
}

std::vector<tensor::Parameter*> LayerBlock::parameters() {
  std::vector<tensor::Parameter*> all;
  layers::collect(all, {own_table_.get()});
  const auto own = layer_.parameters();
  all.insert(all.end(), own.begin(), own.end());
  return all;
}

std::vector<tensor::Parameter*> LayerBlock::shared_parameters() {
  if (table_ == nullptr || own_table_) return {};
  return {table_};
}

at::Tensor HeadBlock::forward(const at::Tensor& x, const tensor::Pass& pass) {
  return head_->forward(PackedSequences(x, pass, sequence_shards_).decoder, pass);
}

}  // namespace colonnade::models::t5
