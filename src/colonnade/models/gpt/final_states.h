// Hidden states that a GPT predicts of: behind its layers a norm, and in training one more layer for each
// further token. Source: Megatron's core/transformer/multi_token_prediction.py; DeepSeek-V3 2024.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "colonnade/layers/prediction.h"
#include "colonnade/tensor/block.h"

namespace colonnade::models::gpt {

/// States of --mtp-num-layers D: h_0 = norm(x), h_k = prediction_k(h_(k-1), tokens k places ahead).
class FinalStates {
 public:
  /// `word` is the embedding's table on this rank, or null: then what looks up rows has a copy.
  FinalStates(const config::Model& model, const config::Parallel& parallel, const layers::Context& context,
              const std::shared_ptr<const ops::RotaryTable>& rotary, tensor::Parameter* word);
  /// x [s, b, h] -> h_0.
  [[nodiscard]] at::Tensor norm(const at::Tensor& x) const { return norm_.forward(x); }
  /// h_0 ... h_D, in training.
  [[nodiscard]] std::vector<at::Tensor> forward(const at::Tensor& x, const tensor::Pass& pass);
  [[nodiscard]] std::int64_t depths() const { return static_cast<std::int64_t>(predictions_.size()); }
  void add_parameters(std::vector<tensor::Parameter*>& all);
  /// The table, where further tokens look up rows of it; else null.
  [[nodiscard]] tensor::Parameter* word() const { return word_; }
  /// It, where another block holds it.
  [[nodiscard]] std::vector<tensor::Parameter*> reads() const;
  void finish_step();

 private:
  layers::Norm norm_;
  std::vector<std::unique_ptr<layers::Prediction>> predictions_;
  std::unique_ptr<tensor::Parameter> own_word_;
  tensor::Parameter* word_;
};

/// A copy of the table of word embeddings, where `word` is null.
std::unique_ptr<tensor::Parameter> copy_of_words(const config::Model& model, const config::Parallel& parallel,
                                                 const layers::Context& context,
                                                 const tensor::Parameter* word);

/// The final norm and the layers of further tokens in a stage before the head's: [s, b, h] -> the states one
/// after the other, [(1 + D) s, b, h] in training and h_0 [s, b, h] otherwise.
class FinalBlock final : public tensor::Block {
 public:
  explicit FinalBlock(std::unique_ptr<FinalStates> states) : states_(std::move(states)) {}
  at::Tensor forward(const at::Tensor& x, const tensor::Pass& pass) override;
  std::vector<tensor::Parameter*> parameters() override;
  std::vector<tensor::Parameter*> reads() override { return states_->reads(); }
  void finish_step() override { states_->finish_step(); }

 private:
  std::unique_ptr<FinalStates> states_;
};

}  // namespace colonnade::models::gpt
