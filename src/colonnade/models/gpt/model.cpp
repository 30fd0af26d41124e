// See model.h.
#include "colonnade/models/gpt/model.h"

#include <algorithm>

#include "colonnade/layers/embedding.h"
#include "colonnade/layers/recompute.h"
#include "colonnade/layers/transformer_layer.h"
#include "colonnade/layers/vocab_loss.h"
#include "colonnade/plan/params/gpt.h"
#include "colonnade/plan/recompute.h"

namespace colonnade::models::gpt {
namespace {

class EmbeddingBlock final : public tensor::Block {
 public:
  EmbeddingBlock(const config::Model& model, const config::Parallel& parallel, const layers::Context& context)
      : embedding_(plan::embedding_params(model, parallel), model, context) {}
  at::Tensor forward(const at::Tensor&, const tensor::Pass& pass) override {
    return embedding_.forward(pass);
  }
  std::vector<tensor::Parameter*> parameters() override {
    std::vector<tensor::Parameter*> all;
    embedding_.add_parameters(all);
    return all;
  }
  [[nodiscard]] tensor::Parameter* word() const { return embedding_.word.get(); }

 private:
  layers::Embedding embedding_;
};

/// Final norm, output layer and loss.
class HeadBlock final : public tensor::Block {
 public:
  /// `tied` is the embedding's table on this rank, or null.
  HeadBlock(const config::Model& model, const config::Parallel& parallel, const layers::Context& context,
            tensor::Parameter* tied)
      : HeadBlock(plan::head_params(model, parallel), plan::embedding_params(model, parallel).word, model,
                  context, tied) {}

  at::Tensor forward(const at::Tensor& x, const tensor::Pass& pass) override {
    const at::Tensor normed = norm_.forward(x);
    if (pass.output == tensor::Output::kLogits)
      return layers::vocab_logits(normed, *output_, tp_, sequence_parallel_);
    return layers::vocab_loss(normed, *output_, pass.batch.at("labels"), tp_, sequence_parallel_);
  }
  std::vector<tensor::Parameter*> parameters() override {
    std::vector<tensor::Parameter*> all;
    layers::collect(all, {norm_.weight.get(), norm_.bias.get(), own_output_.get()});
    return all;
  }
  [[nodiscard]] tensor::Parameter* output() const { return output_; }

 private:
  HeadBlock(const plan::HeadParams& params, const plan::ParamSpec& word, const config::Model& model,
            const layers::Context& context, tensor::Parameter* tied)
      : norm_(params.final_norm, model, context),
        own_output_(params.output ? context.make(*params.output)
                                  : (tied != nullptr ? nullptr : context.make(word))),
        output_(own_output_ ? own_output_.get() : tied),
        tp_(context.tp),
        sequence_parallel_(context.sequence_parallel) {
    if (!params.output && own_output_) own_output_->is_copy = true;
  }

  layers::Norm norm_;
  std::unique_ptr<tensor::Parameter> own_output_;  ///< null: the embedding's table is read
  tensor::Parameter* output_;
  comm::Group tp_;
  bool sequence_parallel_;
};

std::shared_ptr<const ops::RotaryTable> make_rotary(const config::Model& model,
                                                    const layers::Context& context,
                                                    std::int64_t max_sequence) {
  if (model.position_embedding != config::PositionEmbedding::kRope) return nullptr;
  const std::int64_t length = std::max(max_sequence, model.max_position_embeddings);
  return std::make_shared<const ops::RotaryTable>(ops::rotary_table(model, length, context.options.device()));
}

using Blocks = std::vector<std::unique_ptr<tensor::Block>>;

/// The layers of a virtual stage, those that are made again together as one block.
Blocks with_recomputation(Blocks stack, const config::Recompute& recompute) {
  Blocks blocks;
  auto layer = stack.begin();
  for (const std::int64_t length : plan::stretches_made_again(recompute, std::ssize(stack))) {
    const auto end = layer + length;
    blocks.push_back(layers::recomputed({std::move_iterator(layer), std::move_iterator(end)}));
    layer = end;
  }
  std::move(layer, stack.end(), std::back_inserter(blocks));
  return blocks;
}

}  // namespace

std::vector<BuiltStage> build(const std::vector<plan::StageBlocks>& blocks, const config::Model& model,
                              const config::Parallel& parallel, const layers::Context& context,
                              std::int64_t max_sequence) {
  const auto rotary = make_rotary(model, context, max_sequence);
  const bool tied = !model.untie_embeddings_and_output_weights;
  std::vector<BuiltStage> built;
  tensor::Parameter* word = nullptr;
  for (const plan::StageBlocks& part : blocks) {
    BuiltStage& out = built.emplace_back();
    auto& list = out.stage.blocks;
    if (part.embedding) {
      auto block = std::make_unique<EmbeddingBlock>(model, parallel, context);
      word = block->word();
      if (tied) out.word_table = word;
      list.push_back(std::move(block));
    }
    Blocks stack;
    for (std::int64_t i = part.first_layer; i < part.first_layer + part.num_layers; ++i)
      stack.push_back(std::make_unique<layers::TransformerLayer>(plan::layer_params(model, parallel, i),
                                                                 model, context, rotary, i));
    std::ranges::move(with_recomputation(std::move(stack), context.recompute), std::back_inserter(list));
    if (part.head) {
      auto block = std::make_unique<HeadBlock>(model, parallel, context, tied ? word : nullptr);
      if (tied && block->output() != word) out.word_table = block->output();
      list.push_back(std::move(block));
    }
    out.stage.first = part.embedding;
    out.stage.last = part.head;
  }
  return built;
}

}  // namespace colonnade::models::gpt
