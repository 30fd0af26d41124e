// Inputs of a GPT's output layer: the final norm and, in training, the multi-token prediction (MTP) layers.
// Source: Megatron's core/transformer/multi_token_prediction.py; DeepSeek-V3 2024.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "colonnade/layers/mtp.h"
#include "colonnade/tensor/block.h"

namespace colonnade::models::gpt {

/// Hidden states of --mtp-num-layers D: h_0 = norm(x), h_k = mtp_k(h_(k-1), tokens shifted by k).
class FinalStates {
 public:
  FinalStates(const config::Model& model, const config::Parallel& parallel, const layers::Context& context);
  /// Appends the next MTP layer. `word`: word embedding table on this rank; null: MTP layers hold a copy.
  void add_mtp_layer(const config::Model& model, const config::Parallel& parallel,
                     const layers::Context& context, std::shared_ptr<const ops::RotaryTable> rotary,
                     tensor::Parameter* word);
  /// x [s, b, h] -> h_0.
  [[nodiscard]] at::Tensor norm(const at::Tensor& x) const { return norm_.forward(x); }
  /// h_0 ... h_D, in training.
  [[nodiscard]] std::vector<at::Tensor> forward(const at::Tensor& x, const tensor::Pass& pass);
  [[nodiscard]] std::int64_t depths() const { return static_cast<std::int64_t>(mtp_layers_.size()); }
  void add_parameters(std::vector<tensor::Parameter*>& all);
  /// Word embedding table of the MTP layers; null without them.
  [[nodiscard]] tensor::Parameter* word() const { return word_table_; }
  /// The word embedding table, if MTP layers read it and another block holds it.
  [[nodiscard]] std::vector<tensor::Parameter*> shared_parameters() const;
  void finish_step();

 private:
  layers::Norm norm_;
  std::vector<std::unique_ptr<layers::MtpLayer>> mtp_layers_;
  std::unique_ptr<tensor::Parameter> word_copy_;
  tensor::Parameter* word_table_ = nullptr;
};

/// A copy of the word embedding table if `word` is null, else null.
std::unique_ptr<tensor::Parameter> copy_of_word_embeddings(const config::Model& model,
                                                           const config::Parallel& parallel,
                                                           const layers::Context& context,
                                                           const tensor::Parameter* word);

/// Final norm and MTP layers in a stage before the head's: [s, b, h] -> concatenated states
/// [(1 + D) s, b, h] in training, h_0 [s, b, h] otherwise, in the dtype of x, that of pipeline messages.
class FinalBlock final : public tensor::Block {
 public:
  explicit FinalBlock(std::unique_ptr<FinalStates> states) : states_(std::move(states)) {}
  at::Tensor forward(const at::Tensor& x, const tensor::Pass& pass) override;
  std::vector<tensor::Parameter*> parameters() override;
  std::vector<tensor::Parameter*> shared_parameters() override { return states_->shared_parameters(); }
  void finish_step() override { states_->finish_step(); }

 private:
  std::unique_ptr<FinalStates> states_;
};

}  // namespace colonnade::models::gpt
