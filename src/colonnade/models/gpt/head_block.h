// The end of a GPT: final norm, output layer and loss, and in training the further tokens that it predicts.
#pragma once

#include <memory>
#include <vector>

#include "colonnade/layers/prediction.h"
#include "colonnade/layers/vocab_loss.h"

namespace colonnade::models::gpt {

/// Loss [b, s] or logits [b, s, vocabulary]. With --mtp-num-layers D and in training, D layers behind the
/// final norm predict further tokens over the same output layer. With l_k the mean of their cross-entropy
/// over the tokens that have one, factor / D sum_k l_k is attached to what the loss is made of, and the mean
/// of the l_k reported as `mtp_loss`, for D above 1 also each as `mtp_1_loss` and on.
class HeadBlock final : public tensor::Block {
 public:
  /// `word` is the embedding's table on this rank, or null: then what needs it has a copy.
  HeadBlock(const config::Model& model, const config::Parallel& parallel, const layers::Context& context,
            const std::shared_ptr<const ops::RotaryTable>& rotary, tensor::Parameter* word);
  at::Tensor forward(const at::Tensor& x, const tensor::Pass& pass) override;
  std::vector<tensor::Parameter*> parameters() override;
  std::vector<tensor::Parameter*> reads() override;
  void finish_step() override;

 private:
  [[nodiscard]] at::Tensor predict(at::Tensor normed, const tensor::Pass& pass);
  [[nodiscard]] layers::OutputLayer output() const;

  layers::Norm norm_;
  std::vector<std::unique_ptr<layers::Prediction>> predictions_;
  double factor_;                                  ///< of each of their losses
  std::unique_ptr<tensor::Parameter> own_output_;  ///< null: the embedding's table is read
  std::unique_ptr<tensor::Parameter> output_bias_;
  std::unique_ptr<tensor::Parameter> own_word_;
  tensor::Parameter* word_;  ///< null: nothing reads it
  double scale_;             ///< of what logits are made of
  comm::Group tp_;
  bool sequence_parallel_;
};

}  // namespace colonnade::models::gpt
