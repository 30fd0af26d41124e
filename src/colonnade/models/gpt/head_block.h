// The end of a GPT: output layer and loss, and in front of them, in most layouts, what they predict of.
#pragma once

#include <memory>
#include <vector>

#include "colonnade/layers/vocab_loss.h"
#include "colonnade/models/gpt/final_states.h"

namespace colonnade::models::gpt {

/// Loss [b, s] or logits [b, s, vocabulary]. With --mtp-num-layers D and in training further tokens are
/// predicted of the states h_1 ... h_D over the same output layer. With l_k the mean of their cross-entropy
/// over the tokens that have one, factor / D sum_k l_k is attached to what the loss is made of, and the mean
/// of the l_k reported as `mtp_loss`, for D above 1 also each as `mtp_1_loss` and on.
class HeadBlock final : public tensor::Block {
 public:
  /// `states` makes them of the input; null: the input is what a FinalBlock gives. `word` is the table of
  /// word embeddings on this rank; null: a head of tied embeddings reads that of `states`, or has a copy.
  HeadBlock(const config::Model& model, const config::Parallel& parallel, const layers::Context& context,
            std::unique_ptr<FinalStates> states, tensor::Parameter* word);
  at::Tensor forward(const at::Tensor& x, const tensor::Pass& pass) override;
  std::vector<tensor::Parameter*> parameters() override;
  std::vector<tensor::Parameter*> reads() override;
  void finish_step() override;

 private:
  /// h_0 and those of `further` tokens: made of the input, or what it holds.
  [[nodiscard]] std::vector<at::Tensor> states_of(const at::Tensor& x, std::int64_t further,
                                                  const tensor::Pass& pass) const;
  /// `state` with the loss of the `depth`-th further token attached.
  [[nodiscard]] at::Tensor with_loss(const at::Tensor& state, const at::Tensor& further,
                                     const layers::Ahead& ahead, std::size_t depth,
                                     const tensor::Pass& pass) const;
  [[nodiscard]] layers::OutputLayer output() const;

  std::unique_ptr<FinalStates> states_;
  std::int64_t depths_;
  double factor_;                                  ///< of each of their losses
  std::unique_ptr<tensor::Parameter> own_output_;  ///< null: the embedding's table is read
  std::unique_ptr<tensor::Parameter> output_bias_;
  std::unique_ptr<tensor::Parameter> own_word_;
  tensor::Parameter* word_;  ///< null: the head does not read it
  double scale_;             ///< of what logits are made of
  double softcap_;           ///< of logits; 0: none
  comm::Group tp_;
  bool sequence_parallel_;
};

}  // namespace colonnade::models::gpt
