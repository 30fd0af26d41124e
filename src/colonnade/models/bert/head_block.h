// Head of a BERT: final norm, masked language model head and binary (sentence order) head.
#pragma once

#include <memory>
#include <vector>

#include "colonnade/layers/norm.h"
#include "colonnade/layers/replicated_linear.h"
#include "colonnade/layers/vocab_loss.h"
#include "colonnade/models/gpt/final_states.h"
#include "colonnade/tensor/block.h"

namespace colonnade::models::bert {

/// With h = norm(x): masked language model logits from norm(gelu(dense h)) (GELU in erf form) with the tied
/// word embeddings or an output layer of its own, with bias. The binary head, head(tanh(pooler h_0)) of the
/// first token, predicts whether the two segments of a sample are swapped.
///
/// Returns logits [b, s, vocabulary] (Output::kLogits) or losses [b, s] (Output::kLoss); with a binary head
/// [b, s + 1], the last column being each sample's cross-entropy with the batch's `swapped` [b], 0 where that
/// is -100 (padding rows of an evaluation). Source: Megatron's core/models/bert; Devlin et al. 2018; Lan et
/// al. 2019 (order of sentences).
class HeadBlock final : public tensor::Block {
 public:
  /// `states`: final norm. `word`: word embedding table on this rank; null: a tied head holds a copy.
  HeadBlock(const config::Model& model, const config::Parallel& parallel, const layers::Context& context,
            std::unique_ptr<gpt::FinalStates> states, tensor::Parameter* word);
  at::Tensor forward(const at::Tensor& x, const tensor::Pass& pass) override;
  std::vector<tensor::Parameter*> parameters() override;
  std::vector<tensor::Parameter*> shared_parameters() override;

 private:
  struct Transform {
    layers::ReplicatedLinear dense;
    layers::Norm norm;
  };
  struct Binary {
    layers::ReplicatedLinear pooler, head;
  };
  /// Cross-entropy [b] of the binary head on the first token of h.
  [[nodiscard]] at::Tensor sentence_order_loss(const at::Tensor& h, const tensor::Pass& pass) const;
  [[nodiscard]] at::Tensor mlm_transform(const at::Tensor& h) const;

  std::unique_ptr<gpt::FinalStates> states_;
  std::unique_ptr<Transform> transform_;
  std::unique_ptr<tensor::Parameter> output_weight_;  ///< null: tied to the word embeddings
  std::unique_ptr<tensor::Parameter> output_bias_;
  std::unique_ptr<Binary> binary_;  ///< null: no binary head
  std::unique_ptr<tensor::Parameter> word_copy_;
  tensor::Parameter* word_table_ = nullptr;  ///< tied word embeddings; null: untied
  comm::Group tp_;
  bool sequence_parallel_;
};

}  // namespace colonnade::models::bert
