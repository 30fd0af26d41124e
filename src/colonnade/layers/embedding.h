// Token embedding with its table cut by rows over tp.
#pragma once

#include "colonnade/layers/residual.h"
#include "colonnade/layout/params/gpt.h"

namespace colonnade::layers {

/// tokens [b, s] -> word rows + position rows + rows of `token_types` [b, s], dropped: [s, b, h], or [s / tp,
/// b, h] with sequence parallelism. Each rank looks up the tokens it holds; the sum over tp (all-reduce, or
/// reduce-scatter by sequence) completes the rows. The others are added after the sum.
class Embedding {
 public:
  Embedding(const layout::EmbeddingParams& params, const config::Model& model, const Context& context);
  [[nodiscard]] at::Tensor forward(const tensor::Pass& pass) const;
  /// The same of the tokens that an encoder reads, `encoder_tokens`; what is dropped is drawn for itself.
  [[nodiscard]] at::Tensor forward_encoder(const tensor::Pass& pass) const;
  void add_parameters(std::vector<tensor::Parameter*>& all) const;

  std::unique_ptr<tensor::Parameter> word;

 private:
  /// `position_ids` may be undefined.
  [[nodiscard]] at::Tensor rows(const at::Tensor& tokens, const at::Tensor& position_ids) const;
  [[nodiscard]] at::Tensor position_rows(const at::Tensor& tokens, at::Tensor position_ids) const;
  /// Of a table that is whole on every rank, for the part of `ids` [b, s] that this rank has.
  [[nodiscard]] at::Tensor whole_rows(at::Tensor ids, tensor::Parameter& table) const;
  std::unique_ptr<tensor::Parameter> position_, type_;
  comm::Group tp_;
  bool sequence_parallel_;
  double scale_;
  Residual dropout_, encoder_dropout_;
};

/// What embeddings of `type` are multiplied by: 1, or with --scale-embeddings sqrt(hidden size) in that type,
/// in which Gemma's published weights were trained.
double embedding_scale(const config::Model& model, at::ScalarType type);

/// The rows of `tokens` [b, s] out of `word` times `scale`, without positions or dropout: shapes and
/// communication as of Embedding.
at::Tensor word_rows(const at::Tensor& tokens, tensor::Parameter& word, const comm::Group& tp,
                     bool sequence_parallel, double scale);

/// The tokens whose rows this rank holds: [first, first + rows).
struct VocabRange {
  std::int64_t first = 0;
  std::int64_t rows = 0;
};
VocabRange vocab_range(const tensor::Parameter& table);

}  // namespace colonnade::layers
