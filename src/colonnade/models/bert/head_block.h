// The end of a BERT: final norm, masked-language head and the binary head beside it.
#pragma once

#include <memory>
#include <vector>

#include "colonnade/layers/norm.h"
#include "colonnade/layers/vocab_loss.h"
#include "colonnade/layers/whole_linear.h"
#include "colonnade/tensor/block.h"

namespace colonnade::models::bert {

/// With h = norm(x): logits of norm(gelu(dense h)) over the table of word embeddings, or over an output layer
/// of its own, with a bias; GELU in its erf form. The binary head tells of the first token,
/// head(tanh(pooler h_0)), whether the two parts of its sample are swapped.
///
/// Gives logits [b, s, vocabulary] (Output::kLogits), or the losses of tokens [b, s] (Output::kLoss); with
/// a binary head [b, s + 1], in the last column each sample's cross-entropy to `swapped` [b] of the batch.
/// Source: Megatron's core/models/bert; Devlin et al. 2018; Lan et al. 2019 (order of sentences).
class HeadBlock final : public tensor::Block {
 public:
  /// `word` is the table of word embeddings on this rank; null: a tied head has a copy.
  HeadBlock(const config::Model& model, const config::Parallel& parallel, const layers::Context& context,
            tensor::Parameter* word);
  at::Tensor forward(const at::Tensor& x, const tensor::Pass& pass) override;
  std::vector<tensor::Parameter*> parameters() override;
  std::vector<tensor::Parameter*> reads() override;

 private:
  struct Transform {
    layers::WholeLinear dense;
    layers::Norm norm;
  };
  struct Binary {
    layers::WholeLinear pooler, head;
  };
  /// Of the first tokens of h, cross-entropy [b] to what the batch says.
  [[nodiscard]] at::Tensor order_loss(const at::Tensor& h, const tensor::Pass& pass) const;
  [[nodiscard]] at::Tensor transformed(const at::Tensor& h) const;

  layers::Norm norm_;
  std::unique_ptr<Transform> transform_;
  std::unique_ptr<tensor::Parameter> own_output_;  ///< null: the embedding's table is read
  std::unique_ptr<tensor::Parameter> output_bias_;
  std::unique_ptr<Binary> binary_;  ///< null: there is none
  std::unique_ptr<tensor::Parameter> own_word_;
  tensor::Parameter* word_ = nullptr;  ///< null: the head does not read it
  comm::Group tp_;
  bool sequence_parallel_;
};

}  // namespace colonnade::models::bert
