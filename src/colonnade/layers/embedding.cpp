// See embedding.h.
#include "colonnade/layers/embedding.h"

#include <ATen/ops/scalar_tensor.h>

#include <cmath>

#include "colonnade/base/error.h"
#include "colonnade/layers/mappings.h"
#include "colonnade/ops/embedding.h"

namespace colonnade::layers {

VocabRange vocab_range(const tensor::Parameter& table) {
  if (table.shard.boxes.empty()) return {};
  return {table.shard.boxes.front().global[0], table.shard.boxes.front().length[0]};
}

double embedding_scale(const config::Model& model, at::ScalarType type) {
  if (!model.scale_embeddings) return 1;
  const double root = std::sqrt(static_cast<double>(model.hidden_size));
  return at::scalar_tensor(root, at::TensorOptions().dtype(type)).item<double>();
}

at::Tensor word_embeddings(const at::Tensor& tokens, tensor::Parameter& word, const comm::Group& tp,
                           bool sequence_parallel, double scale) {
  const VocabRange held = vocab_range(word);
  const at::Tensor partial = ops::embedding(tokens, word, held.first, held.rows);
  const at::Tensor rows =
      sequence_parallel ? reduce_scatter_to_sp_region(partial, tp) : reduce_from_tp_region(partial, tp);
  return scale == 1 ? rows : rows * scale;
}

Embedding::Embedding(const layout::EmbeddingParams& params, const config::Model& model,
                     const Context& context)
    : word(context.make(params.word)),
      position_(context.make(params.position)),
      type_(context.make(params.type)),
      tp_(context.tp),
      sequence_parallel_(context.sequence_parallel),
      scale_(embedding_scale(model, word->value.scalar_type())),
      multiplier_(model.embedding_multiplier()),
      residual_type_(residual_type(model, word->value.scalar_type())),
      dropout_(params.word.name, model.hidden_dropout, context) {}

at::Tensor Embedding::position_rows(const at::Tensor& tokens, at::Tensor ids) const {
  if (!ids.defined()) ids = at::arange(tokens.size(1), tokens.options()).expand(tokens.sizes());
  return replicated_rows(std::move(ids), *position_);
}

at::Tensor Embedding::replicated_rows(at::Tensor ids, tensor::Parameter& table) const {
  if (sequence_parallel_) {
    const auto length = ids.size(1) / tp_.size();
    ids = ids.narrow(1, tp_.rank() * length, length);
  }
  return ops::embedding(ids.contiguous(), table, 0, table.value.size(0));
}

at::Tensor Embedding::embed(const at::Tensor& tokens, const at::Tensor& position_ids) const {
  const at::Tensor x = word_embeddings(tokens, *word, tp_, sequence_parallel_, scale_);
  return position_ ? x + position_rows(tokens, position_ids) : x;
}

at::Tensor Embedding::forward(const tensor::Pass& pass) const {
  at::Tensor x = embed(pass.batch.at(tensor::Field::kTokens), pass.batch.find(tensor::Field::kPositionIds));
  if (type_) x = x + replicated_rows(pass.batch.at(tensor::Field::kTokenTypes), *type_);
  return dropout_.drop(multiplied(x).to(residual_type_), pass);
}

at::Tensor Embedding::forward(const at::Tensor& tokens, const Residual& dropout,
                              const tensor::Pass& pass) const {
  return dropout.drop(multiplied(embed(tokens, {})).to(residual_type_), pass);
}

void Embedding::add_parameters(std::vector<tensor::Parameter*>& all) const {
  collect(all, {word.get(), position_.get(), type_.get()});
}

}  // namespace colonnade::layers
