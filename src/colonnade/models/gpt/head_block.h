// Head of a GPT: output layer and loss, in most layouts preceded by final norm and MTP layers.
#pragma once

#include <memory>
#include <vector>

#include "colonnade/layers/vocab_loss.h"
#include "colonnade/models/gpt/final_states.h"

namespace colonnade::models::gpt {

/// Loss [b, s] or logits [b, s, vocabulary]. With --mtp-num-layers D, in training, the MTP states h_1 ... h_D
/// predict tokens further ahead with the same output layer. With l_k the mean cross-entropy of h_k over its
/// targets, mtp_loss_scaling_factor / D sum_k l_k is attached to the main loss's input. The mean of the l_k
/// is reported as `mtp_loss`, for D > 1 each also as `mtp_1_loss`, `mtp_2_loss`, ...
class HeadBlock final : public tensor::Block {
 public:
  /// `states` computes the hidden states from the input; null: the input is a FinalBlock's output. `word`:
  /// word embedding table on this rank; null: with tied embeddings the head reads the table of `states` or a
  /// copy.
  HeadBlock(const config::Model& model, const config::Parallel& parallel, const layers::Context& context,
            std::unique_ptr<FinalStates> states, tensor::Parameter* word);
  at::Tensor forward(const at::Tensor& x, const tensor::Pass& pass) override;
  std::vector<tensor::Parameter*> parameters() override;
  std::vector<tensor::Parameter*> shared_parameters() override;
  void finish_step() override;

 private:
  /// h_0 ... h_D for D = `mtp_depths`, computed from the input or split from it.
  [[nodiscard]] std::vector<at::Tensor> states_of(const at::Tensor& x, std::int64_t mtp_depths,
                                                  const tensor::Pass& pass) const;
  /// `state` with the loss of the `depth`-th MTP layer attached.
  [[nodiscard]] at::Tensor with_mtp_loss(const at::Tensor& state, const at::Tensor& mtp_state,
                                         const layers::MtpTargets& targets, std::size_t depth,
                                         const tensor::Pass& pass) const;
  [[nodiscard]] layers::OutputLayer output() const;

  std::unique_ptr<FinalStates> states_;
  std::int64_t depths_;
  double mtp_loss_scale_;                             ///< weight of each MTP loss
  std::unique_ptr<tensor::Parameter> output_weight_;  ///< null: tied to the word embeddings
  std::unique_ptr<tensor::Parameter> output_bias_;
  std::unique_ptr<tensor::Parameter> word_copy_;
  tensor::Parameter* word_table_;  ///< tied word embeddings; null: untied
  double output_scale_;            ///< factor on the output layer's input (T5)
  double logit_multiplier_;        ///< muP; applied to the input of the output layer
  double softcap_;                 ///< logit soft cap; 0: none
  comm::Group tp_;
  bool sequence_parallel_;
};

}  // namespace colonnade::models::gpt
