// Vocabulary-parallel token embedding.
#pragma once

#include "colonnade/layers/residual.h"
#include "colonnade/layout/params/gpt.h"

namespace colonnade::layers {

/// dropout(word + position + token type embeddings) of `tokens` and `token_types` [b, s]: [s, b, h], or
/// [s / tp, b, h] with sequence parallelism. Each rank looks up its shard of the vocabulary; an all-reduce
/// over tp (reduce-scatter with sequence parallelism) completes word embeddings, before the others are added.
/// The sum, with muP times --mup-embedding-mult, is converted to the dtype of the residual stream before
/// dropout.
class Embedding {
 public:
  Embedding(const layout::EmbeddingParams& params, const config::Model& model, const Context& context);
  [[nodiscard]] at::Tensor forward(const tensor::Pass& pass) const;
  /// dropout(word + position embeddings) of another sequence [b, t] of the samples, with its own dropout.
  [[nodiscard]] at::Tensor forward(const at::Tensor& tokens, const Residual& dropout,
                                   const tensor::Pass& pass) const;
  void add_parameters(std::vector<tensor::Parameter*>& all) const;

  std::unique_ptr<tensor::Parameter> word;

 private:
  /// `position_ids` may be undefined.
  [[nodiscard]] at::Tensor embed(const at::Tensor& tokens, const at::Tensor& position_ids) const;
  [[nodiscard]] at::Tensor multiplied(const at::Tensor& x) const {
    return multiplier_ == 1 ? x : x * multiplier_;
  }
  [[nodiscard]] at::Tensor position_rows(const at::Tensor& tokens, at::Tensor position_ids) const;
  /// Rows of a replicated table for this rank's part of `ids` [b, s].
  [[nodiscard]] at::Tensor replicated_rows(at::Tensor ids, tensor::Parameter& table) const;
  std::unique_ptr<tensor::Parameter> position_, type_;
  comm::Group tp_;
  bool sequence_parallel_;
  double scale_, multiplier_;  ///< of word embeddings (--scale-embeddings), and of all together (muP)
  at::ScalarType residual_type_;
  Residual dropout_;
};

/// Factor on word embeddings: 1, or sqrt(hidden size) rounded to `type` with --scale-embeddings, as Gemma was
/// trained.
double embedding_scale(const config::Model& model, at::ScalarType type);

/// scale * rows of `word` for `tokens` [b, s], without positions or dropout. Shapes and communication as in
/// Embedding.
at::Tensor word_embeddings(const at::Tensor& tokens, tensor::Parameter& word, const comm::Group& tp,
                           bool sequence_parallel, double scale);

/// Token ids whose embeddings this rank holds: [first, first + rows).
struct VocabRange {
  std::int64_t first = 0;
  std::int64_t rows = 0;
};
VocabRange vocab_range(const tensor::Parameter& table);

}  // namespace colonnade::layers
