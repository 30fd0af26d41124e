// See model.h.
#include "colonnade/models/bert/model.h"

#include <algorithm>

#include "colonnade/layers/recompute.h"
#include "colonnade/layers/transformer_layer.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/models/bert/head_block.h"
#include "colonnade/models/gpt/embedding_block.h"

namespace colonnade::models::bert {

std::vector<tensor::Stage> build(const std::vector<layout::StageBlocks>& blocks, const config::Model& model,
                                 const config::Parallel& parallel, const layers::Context& context,
                                 std::int64_t max_sequence) {
  std::shared_ptr<const ops::RotaryTable> rotary;
  if (model.has_rotary())
    rotary = std::make_shared<const ops::RotaryTable>(ops::rotary_table(
        model, std::max(max_sequence, model.max_position_embeddings), context.options.device()));
  std::vector<tensor::Stage> built;
  tensor::Parameter* word = nullptr;
  for (const layout::StageBlocks& stage_blocks : blocks) {
    tensor::Stage& stage = built.emplace_back();
    if (stage_blocks.embedding) {
      auto block = std::make_unique<gpt::EmbeddingBlock>(model, parallel, context);
      word = block->word();
      stage.blocks.push_back(std::move(block));
    }
    layers::Blocks stack;
    for (std::int64_t i = stage_blocks.first_layer; i < stage_blocks.first_layer + stage_blocks.num_layers;
         ++i)
      stack.push_back(std::make_unique<layers::TransformerLayer>(
          layout::layer_params(model, parallel, i), model, context, rotary, i,
          layers::MaskSpec{.causal = false, .mask = "padding"}));
    layers::append_with_recomputation(stage.blocks, std::move(stack), context.recompute);
    if (stage_blocks.head)
      stage.blocks.push_back(std::make_unique<HeadBlock>(model, parallel, context, word));
    stage.first = stage_blocks.embedding;
    stage.last = stage_blocks.head;
  }
  return built;
}

}  // namespace colonnade::models::bert
