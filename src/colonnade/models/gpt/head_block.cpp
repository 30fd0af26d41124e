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
      mtp_loss_scale_(depths_ > 0 ? model.mtp_loss_scaling_factor / static_cast<double>(depths_) : 0),
      word_table_(nullptr),
      output_scale_(model.scale_decoder_outputs ? 1.0 / std::sqrt(static_cast<double>(model.hidden_size))
                                                : 1.0),
      logit_multiplier_(model.logit_multiplier()),
      softcap_(model.final_logit_softcapping),
      tp_(context.tp),
      sequence_parallel_(context.sequence_parallel) {
  const layout::HeadParams params = layout::head_params(model, parallel);
  output_weight_ = context.make(params.output);
  output_bias_ = context.make(params.output_bias);
  if (output_weight_) return;
  if (states_ && states_->word() != nullptr) word = states_->word();
  word_copy_ = copy_of_word_embeddings(model, parallel, context, word);
  word_table_ = word_copy_ ? word_copy_.get() : word;
}

layers::OutputLayer HeadBlock::output() const {
  return {output_weight_ ? output_weight_.get() : word_table_, output_bias_.get(), softcap_};
}

at::Tensor HeadBlock::forward(const at::Tensor& x, const tensor::Pass& pass) {
  const double scale = output_scale_ * logit_multiplier_;
  const auto scaled = [scale](const at::Tensor& state) { return scale != 1 ? state * scale : state; };
  if (pass.output == tensor::Output::kLogits)
    return layers::vocab_logits(scaled(states_of(x, 0, pass)[0]), output(), tp_, sequence_parallel_);
  const auto targets =
      pass.training ? layers::MtpTargets::all(pass.batch, depths_) : std::vector<layers::MtpTargets>();
  const std::vector<at::Tensor> states = states_of(x, std::ssize(targets), pass);
  at::Tensor state = scaled(states[0]);
  for (std::size_t i = 0; i < targets.size(); ++i)
    state = with_mtp_loss(state, states[i + 1], targets[i], i + 1, pass);
  return layers::vocab_loss(state, output(), pass.batch.at(tensor::Field::kLabels), tp_, sequence_parallel_);
}

std::vector<at::Tensor> HeadBlock::states_of(const at::Tensor& x, std::int64_t mtp_depths,
                                             const tensor::Pass& pass) const {
  if (states_ && mtp_depths > 0) return states_->forward(x, pass);
  if (states_) return {states_->norm(x)};
  COL_CHECK(
      x.size(0) % (1 + mtp_depths) == 0,
      "head: input must hold {} states per token; got {} rows; correct the output of the stage before it",
      1 + mtp_depths, x.size(0));
  // Messages have the dtype of the residual stream.
  return x.to(output().weight->value.scalar_type()).split(x.size(0) / (1 + mtp_depths));
}

at::Tensor HeadBlock::with_mtp_loss(const at::Tensor& state, const at::Tensor& mtp_state,
                                    const layers::MtpTargets& targets, std::size_t depth,
                                    const tensor::Pass& pass) const {
  const at::Tensor scaled = logit_multiplier_ != 1 ? mtp_state * logit_multiplier_ : mtp_state;
  const at::Tensor losses = layers::vocab_loss(scaled, output(), targets.labels, tp_, sequence_parallel_);
  const at::Tensor sum = (losses * targets.mask).sum();
  if (pass.report != nullptr) {
    const auto mtp_loss = tensor::metric_sum(sum.detach(), targets.mask.sum());
    tensor::add(pass.report->metric_sums, "mtp_loss", mtp_loss);
    if (depths_ > 1) tensor::add(pass.report->metric_sums, fmt::format("mtp_{}_loss", depth), mtp_loss);
  }
  return ops::attach_loss(state, sum / targets.count.clamp_min(1), mtp_loss_scale_ * pass.grad_scale);
}

std::vector<tensor::Parameter*> HeadBlock::parameters() {
  std::vector<tensor::Parameter*> all;
  if (states_) states_->add_parameters(all);
  layers::collect(all, {output_weight_.get(), output_bias_.get(), word_copy_.get()});
  return all;
}

std::vector<tensor::Parameter*> HeadBlock::shared_parameters() {
  std::vector<tensor::Parameter*> all;
  if (states_) all = states_->shared_parameters();
  const bool looked_up = states_ && states_->word() != nullptr;
  if (word_table_ != nullptr && !word_copy_ && !looked_up) all.push_back(word_table_);
  return all;
}

void HeadBlock::finish_step() {
  if (states_) states_->finish_step();
}

}  // namespace colonnade::models::gpt
