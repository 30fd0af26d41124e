// See head_block.h.
#include "colonnade/models/gpt/head_block.h"

#include <fmt/format.h>

#include <cmath>

#include "colonnade/base/error.h"
#include "colonnade/layers/vocab_loss.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/ops/attach_loss.h"

namespace colonnade::models::gpt {

HeadBlock::HeadBlock(const config::Model& model, const config::Parallel& parallel,
                     const layers::Context& context, std::unique_ptr<FinalStates> states,
                     tensor::Parameter* word)
    : states_(std::move(states)),
      depths_(model.mtp_num_layers),
      factor_(depths_ > 0 ? model.mtp_loss_scaling_factor / static_cast<double>(depths_) : 0),
      word_(nullptr),
      scale_(model.scale_decoder_outputs ? 1.0 / std::sqrt(static_cast<double>(model.hidden_size)) : 1.0),
      softcap_(model.final_logit_softcapping),
      tp_(context.tp),
      sequence_parallel_(context.sequence_parallel) {
  const layout::HeadParams params = layout::head_params(model, parallel);
  own_output_ = context.make(params.output);
  output_bias_ = context.make(params.output_bias);
  if (own_output_) return;
  if (states_ && states_->word() != nullptr) word = states_->word();
  own_word_ = copy_of_words(model, parallel, context, word);
  word_ = own_word_ ? own_word_.get() : word;
}

layers::OutputLayer HeadBlock::output() const {
  return {own_output_ ? own_output_.get() : word_, output_bias_.get(), softcap_};
}

at::Tensor HeadBlock::forward(const at::Tensor& x, const tensor::Pass& pass) {
  const auto scaled = [this](const at::Tensor& state) { return scale_ != 1 ? state * scale_ : state; };
  if (pass.output == tensor::Output::kLogits)
    return layers::vocab_logits(scaled(states_ ? states_->norm(x) : x), output(), tp_, sequence_parallel_);
  const auto ahead = pass.training ? layers::Ahead::all(pass.batch, depths_) : std::vector<layers::Ahead>();
  const std::vector<at::Tensor> states = states_of(x, std::ssize(ahead), pass);
  at::Tensor state = scaled(states[0]);
  for (std::size_t i = 0; i < ahead.size(); ++i)
    state = with_loss(state, states[i + 1], ahead[i], i + 1, pass);
  return layers::vocab_loss(state, output(), pass.batch.at("labels"), tp_, sequence_parallel_);
}

std::vector<at::Tensor> HeadBlock::states_of(const at::Tensor& x, std::int64_t further,
                                             const tensor::Pass& pass) const {
  if (states_ && further > 0) return states_->forward(x, pass);
  if (states_) return {states_->norm(x)};
  COL_CHECK(
      x.size(0) % (1 + further) == 0,
      "head: its input must hold {} states of each token; got {} rows; correct what the stage before it "
      "hands on",
      1 + further, x.size(0));
  return x.split(x.size(0) / (1 + further));
}

at::Tensor HeadBlock::with_loss(const at::Tensor& state, const at::Tensor& further,
                                const layers::Ahead& ahead, std::size_t depth,
                                const tensor::Pass& pass) const {
  const at::Tensor losses = layers::vocab_loss(further, output(), ahead.labels, tp_, sequence_parallel_);
  const at::Tensor sum = (losses * ahead.mask).sum();
  if (pass.report != nullptr) {
    const auto told = tensor::tally(sum.detach(), ahead.mask.sum());
    tensor::add(pass.report->tallies, "mtp_loss", told);
    if (depths_ > 1) tensor::add(pass.report->tallies, fmt::format("mtp_{}_loss", depth), told);
  }
  return ops::attach_loss(state, sum / ahead.count.clamp_min(1), factor_ * pass.grad_scale);
}

std::vector<tensor::Parameter*> HeadBlock::parameters() {
  std::vector<tensor::Parameter*> all;
  if (states_) states_->add_parameters(all);
  layers::collect(all, {own_output_.get(), output_bias_.get(), own_word_.get()});
  return all;
}

std::vector<tensor::Parameter*> HeadBlock::reads() {
  std::vector<tensor::Parameter*> all;
  if (states_) all = states_->reads();
  const bool looked_up = states_ && states_->word() != nullptr;
  if (word_ != nullptr && !own_word_ && !looked_up) all.push_back(word_);
  return all;
}

void HeadBlock::finish_step() {
  if (states_) states_->finish_step();
}

}  // namespace colonnade::models::gpt
