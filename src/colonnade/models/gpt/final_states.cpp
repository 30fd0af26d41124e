// See final_states.h.
#include "colonnade/models/gpt/final_states.h"

#include <ATen/ops/cat.h>

#include "colonnade/layout/params/gpt.h"

namespace colonnade::models::gpt {

std::unique_ptr<tensor::Parameter> copy_of_words(const config::Model& model, const config::Parallel& parallel,
                                                 const layers::Context& context,
                                                 const tensor::Parameter* word) {
  if (word != nullptr) return nullptr;
  auto copy = context.make(layout::embedding_params(model, parallel).word);
  copy->is_copy = true;
  return copy;
}

FinalStates::FinalStates(const config::Model& model, const config::Parallel& parallel,
                         const layers::Context& context,
                         const std::shared_ptr<const ops::RotaryTable>& rotary, tensor::Parameter* word)
    : norm_(layout::final_params(model, parallel).norm, model, context), word_(nullptr) {
  const layout::FinalParams params = layout::final_params(model, parallel);
  for (const layout::PredictionParams& one : params.predictions) {
    const auto layer = model.num_layers + static_cast<std::int64_t>(predictions_.size());
    predictions_.push_back(std::make_unique<layers::Prediction>(one, model, context, rotary, layer));
  }
  if (predictions_.empty()) return;
  own_word_ = copy_of_words(model, parallel, context, word);
  word_ = own_word_ ? own_word_.get() : word;
}

std::vector<at::Tensor> FinalStates::forward(const at::Tensor& x, const tensor::Pass& pass) {
  std::vector<at::Tensor> states{norm_.forward(x)};
  if (predictions_.empty()) return states;
  const auto tokens = layers::Ahead::all_tokens(pass.batch, depths());
  for (std::size_t i = 0; i < tokens.size(); ++i)
    states.push_back(predictions_[i]->forward(states.back(), tokens[i], *word_, pass));
  return states;
}

std::vector<tensor::Parameter*> FinalStates::reads() const {
  if (word_ == nullptr || own_word_) return {};
  return {word_};
}

void FinalStates::add_parameters(std::vector<tensor::Parameter*>& all) {
  layers::collect(all, {norm_.weight.get(), norm_.bias.get()});
  for (const auto& prediction : predictions_) prediction->add_parameters(all);
  layers::collect(all, {own_word_.get()});
}

void FinalStates::finish_step() {
  for (const auto& prediction : predictions_) prediction->finish_step();
}

at::Tensor FinalBlock::forward(const at::Tensor& x, const tensor::Pass& pass) {
  if (!pass.training) return states_->norm(x);
  return at::cat(states_->forward(x, pass));
}

std::vector<tensor::Parameter*> FinalBlock::parameters() {
  std::vector<tensor::Parameter*> all;
  states_->add_parameters(all);
  return all;
}

}  // namespace colonnade::models::gpt
