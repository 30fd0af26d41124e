// See head_block.h.
#include "colonnade/models/gpt/head_block.h"

#include <fmt/format.h>

#include <cmath>

#include "colonnade/layers/vocab_loss.h"
#include "colonnade/ops/attach_loss.h"
#include "colonnade/plan/params/gpt.h"

namespace colonnade::models::gpt {
namespace {

std::unique_ptr<tensor::Parameter> copy_of_words(const config::Model& model, const config::Parallel& parallel,
                                                 const layers::Context& context,
                                                 const tensor::Parameter* word) {
  if (word != nullptr || !model.word_embeddings_shared()) return nullptr;
  auto copy = context.make(plan::embedding_params(model, parallel).word);
  copy->is_copy = true;
  return copy;
}

}  // namespace

HeadBlock::HeadBlock(const config::Model& model, const config::Parallel& parallel,
                     const layers::Context& context, const std::shared_ptr<const ops::RotaryTable>& rotary,
                     tensor::Parameter* word)
    : norm_(plan::head_params(model, parallel).final_norm, model, context),
      factor_(model.mtp_num_layers > 0
                  ? model.mtp_loss_scaling_factor / static_cast<double>(model.mtp_num_layers)
                  : 0),
      own_word_(copy_of_words(model, parallel, context, word)),
      word_(word != nullptr ? word : own_word_.get()),
      scale_(model.scale_decoder_outputs ? 1.0 / std::sqrt(static_cast<double>(model.hidden_size)) : 1.0),
      tp_(context.tp),
      sequence_parallel_(context.sequence_parallel) {
  const plan::HeadParams params = plan::head_params(model, parallel);
  own_output_ = context.make(params.output);
  output_bias_ = context.make(params.output_bias);
  for (const plan::PredictionParams& one : params.predictions) {
    const auto layer = model.num_layers + static_cast<std::int64_t>(predictions_.size());
    predictions_.push_back(std::make_unique<layers::Prediction>(one, model, context, rotary, layer));
  }
}

layers::OutputLayer HeadBlock::output() const {
  return {own_output_ ? own_output_.get() : word_, output_bias_.get()};
}

at::Tensor HeadBlock::forward(const at::Tensor& x, const tensor::Pass& pass) {
  at::Tensor normed = norm_.forward(x);
  if (scale_ != 1) normed = normed * scale_;
  if (pass.output == tensor::Output::kLogits)
    return layers::vocab_logits(normed, output(), tp_, sequence_parallel_);
  return layers::vocab_loss(pass.training ? predict(normed, pass) : normed, output(), pass.batch.at("labels"),
                            tp_, sequence_parallel_);
}

at::Tensor HeadBlock::predict(at::Tensor normed, const tensor::Pass& pass) {
  if (predictions_.empty()) return normed;
  at::Tensor hidden = normed;
  layers::Ahead ahead = layers::Ahead::of(pass.batch);
  for (std::size_t i = 0; i < predictions_.size(); ++i) {
    ahead = layers::Ahead::after(ahead, pass.batch, i + 1);
    hidden = predictions_[i]->forward(hidden, ahead.tokens, *word_, pass);
    const at::Tensor losses = layers::vocab_loss(hidden, output(), ahead.labels, tp_, sequence_parallel_);
    const at::Tensor sum = (losses * ahead.mask).sum();
    if (pass.report != nullptr) {
      const auto told = tensor::tally(sum.detach(), ahead.mask.sum());
      tensor::add(pass.report->tallies, "mtp_loss", told);
      if (predictions_.size() > 1) tensor::add(pass.report->tallies, fmt::format("mtp_{}_loss", i + 1), told);
    }
    normed = ops::attach_loss(normed, sum / ahead.count.clamp_min(1), factor_ * pass.grad_scale);
  }
  return normed;
}

std::vector<tensor::Parameter*> HeadBlock::parameters() {
  std::vector<tensor::Parameter*> all;
  layers::collect(all, {norm_.weight.get(), norm_.bias.get()});
  for (const auto& prediction : predictions_) prediction->add_parameters(all);
  layers::collect(all, {own_output_.get(), output_bias_.get(), own_word_.get()});
  return all;
}

std::vector<tensor::Parameter*> HeadBlock::reads() {
  if (word_ == nullptr || word_ == own_word_.get()) return {};
  return {word_};
}

void HeadBlock::finish_step() {
  for (const auto& prediction : predictions_) prediction->finish_step();
}

}  // namespace colonnade::models::gpt
