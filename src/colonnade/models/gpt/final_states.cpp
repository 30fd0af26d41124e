// See final_states.h.
#include "colonnade/models/gpt/final_states.h"

#include <ATen/ops/cat.h>

#include "colonnade/layout/params/gpt.h"

namespace colonnade::models::gpt {

std::unique_ptr<tensor::Parameter> copy_of_word_embeddings(const config::Model& model,
                                                           const config::Parallel& parallel,
                                                           const layers::Context& context,
                                                           const tensor::Parameter* word) {
  if (word != nullptr) return nullptr;
  auto copy = context.make(layout::embedding_params(model, parallel).word);
  copy->is_tied_copy = true;
  return copy;
}

FinalStates::FinalStates(const config::Model& model, const config::Parallel& parallel,
                         const layers::Context& context)
    : norm_(layout::final_norm_params(model, parallel), model, context) {}

void FinalStates::add_mtp_layer(const config::Model& model, const config::Parallel& parallel,
                                const layers::Context& context,
                                std::shared_ptr<const ops::RotaryTable> rotary, tensor::Parameter* word) {
  const std::int64_t depth = depths();
  mtp_layers_.push_back(std::make_unique<layers::MtpLayer>(layout::mtp_layer_params(model, parallel, depth),
                                                           model, context, std::move(rotary),
                                                           model.num_layers + depth));
  if (word_table_ != nullptr) return;
  word_copy_ = copy_of_word_embeddings(model, parallel, context, word);
  word_table_ = word_copy_ ? word_copy_.get() : word;
}

std::vector<at::Tensor> FinalStates::forward(const at::Tensor& x, const tensor::Pass& pass) {
  std::vector<at::Tensor> states{norm_.forward(x)};
  if (mtp_layers_.empty()) return states;
  const auto tokens = layers::MtpTargets::all_tokens(pass.batch, depths());
  for (std::size_t i = 0; i < tokens.size(); ++i)
    states.push_back(mtp_layers_[i]->forward(states.back(), tokens[i], *word_table_, pass));
  return states;
}

std::vector<tensor::Parameter*> FinalStates::shared_parameters() const {
  if (word_table_ == nullptr || word_copy_) return {};
  return {word_table_};
}

void FinalStates::add_parameters(std::vector<tensor::Parameter*>& all) {
  layers::collect(all, {norm_.weight.get(), norm_.bias.get()});
  for (const auto& layer : mtp_layers_) layer->add_parameters(all);
  layers::collect(all, {word_copy_.get()});
}

void FinalStates::finish_step() {
  for (const auto& layer : mtp_layers_) layer->finish_step();
}

at::Tensor FinalBlock::forward(const at::Tensor& x, const tensor::Pass& pass) {
  if (!pass.training) return states_->norm(x).to(x.scalar_type());
  return at::cat(states_->forward(x, pass)).to(x.scalar_type());
}

std::vector<tensor::Parameter*> FinalBlock::parameters() {
  std::vector<tensor::Parameter*> all;
  states_->add_parameters(all);
  return all;
}

}  // namespace colonnade::models::gpt
