// See head_block.h.
#include "colonnade/models/bert/head_block.h"

#include "colonnade/layers/mappings.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/ops/activation.h"
#include "colonnade/tensor/dtypes.h"

namespace colonnade::models::bert {

HeadBlock::HeadBlock(const config::Model& model, const config::Parallel& parallel,
                     const layers::Context& context, std::unique_ptr<gpt::FinalStates> states,
                     tensor::Parameter* word)
    : states_(std::move(states)), tp_(context.tp), sequence_parallel_(context.sequence_parallel) {
  const layout::HeadParams params = layout::head_params(model, parallel);
  if (params.transform)
    transform_ = std::make_unique<Transform>(Transform{.dense = {params.transform->dense, context},
                                                       .norm = {params.transform->norm, model, context}});
  output_weight_ = context.make(params.output);
  output_bias_ = context.make(params.output_bias);
  if (params.binary)
    binary_ = std::make_unique<Binary>(
        Binary{.pooler = {params.binary->pooler, context}, .head = {params.binary->head, context}});
  if (output_weight_) return;
  word_copy_ = gpt::copy_of_word_embeddings(model, parallel, context, word);
  word_table_ = word_copy_ ? word_copy_.get() : word;
}

at::Tensor HeadBlock::mlm_transform(const at::Tensor& h) const {
  if (!transform_) return h;
  return transform_->norm.forward(ops::activate(transform_->dense.forward(h), config::Activation::kGeluErf));
}

at::Tensor HeadBlock::sentence_order_loss(const at::Tensor& h, const tensor::Pass& pass) const {
  const at::Tensor first = layers::first_token(h, tp_, sequence_parallel_);
  const at::Tensor logits = binary_->head.forward(binary_->pooler.forward(first).tanh());
  return at::cross_entropy_loss(logits.to(tensor::acc_type(logits.scalar_type())),
                                pass.batch.at(tensor::Field::kSwapped), {}, at::Reduction::None);
}

at::Tensor HeadBlock::forward(const at::Tensor& x, const tensor::Pass& pass) {
  const layers::OutputLayer output{output_weight_ ? output_weight_.get() : word_table_, output_bias_.get()};
  const at::Tensor h = states_->norm(x);
  if (pass.output == tensor::Output::kLogits)
    return layers::vocab_logits(mlm_transform(h), output, tp_, sequence_parallel_);
  const at::Tensor order = binary_ ? sentence_order_loss(h, pass) : at::Tensor();
  const at::Tensor losses = layers::vocab_loss(
      mlm_transform(h), output, pass.batch.at(tensor::Field::kLabels), tp_, sequence_parallel_);
  return binary_ ? at::cat({losses, order.unsqueeze(1)}, 1) : losses;
}

std::vector<tensor::Parameter*> HeadBlock::parameters() {
  std::vector<tensor::Parameter*> all;
  states_->add_parameters(all);
  if (transform_) {
    transform_->dense.add_parameters(all);
    layers::collect(all, {transform_->norm.weight.get(), transform_->norm.bias.get()});
  }
  layers::collect(all, {output_weight_.get(), output_bias_.get()});
  if (binary_) {
    binary_->pooler.add_parameters(all);
    binary_->head.add_parameters(all);
  }
  layers::collect(all, {word_copy_.get()});
  return all;
}

std::vector<tensor::Parameter*> HeadBlock::shared_parameters() {
  if (word_table_ == nullptr || word_copy_) return {};
  return {word_table_};
}

}  // namespace colonnade::models::bert
