// See model.h.
#include "colonnade/models/gpt/model.h"

#include <algorithm>

#include "colonnade/layers/recompute.h"
#include "colonnade/layers/transformer_layer.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/models/gpt/embedding_block.h"
#include "colonnade/models/gpt/head_block.h"

namespace colonnade::models::gpt {
namespace {

using SharedTable = std::shared_ptr<const ops::RotaryTable>;

/// Rotary tables of global layers and of sliding-window layers, which may have a base of their own (Gemma 3).
struct Rotary {
  Rotary(const config::Model& model, const layers::Context& context, std::int64_t max_sequence) {
    if (!model.has_rotary()) return;
    const std::int64_t length = std::max(max_sequence, model.max_position_embeddings);
    const auto make = [&](const config::Model& m) {
      return std::make_shared<const ops::RotaryTable>(ops::rotary_table(m, length, context.options.device()));
    };
    global = local = make(model);
    if (!model.rotary_base_local || model.window_size == 0) return;
    config::Model unscaled = model;
    unscaled.position_embedding = config::PositionEmbedding::kRope;
    unscaled.rope_type = config::RopeType::kRope;
    unscaled.rotary_base = *model.rotary_base_local;
    unscaled.use_rope_scaling = false;
    unscaled.rotary_seq_len_interpolation_factor = 1;
    local = make(unscaled);
  }
  /// Table of `layer`; MTP layers use that of the last layer.
  [[nodiscard]] const SharedTable& of(const config::Model& model, std::int64_t layer) const {
    return layout::attention_window(model, layer) > 0 ? local : global;
  }
  SharedTable global, local;
};

}  // namespace

std::vector<tensor::Stage> build(const std::vector<layout::StageBlocks>& blocks, const config::Model& model,
                                 const config::Parallel& parallel, const layers::Context& context,
                                 std::int64_t max_sequence) {
  const Rotary rotary(model, context, max_sequence);
  std::vector<tensor::Stage> built;
  tensor::Parameter* word = nullptr;
  for (const layout::StageBlocks& stage_blocks : blocks) {
    tensor::Stage& stage = built.emplace_back();
    if (stage_blocks.embedding) {
      auto block = std::make_unique<EmbeddingBlock>(model, parallel, context);
      word = block->word();
      stage.blocks.push_back(std::move(block));
    }
    layers::Blocks stack;
    for (std::int64_t i = stage_blocks.first_layer; i < stage_blocks.first_layer + stage_blocks.num_layers;
         ++i)
      stack.push_back(std::make_unique<layers::TransformerLayer>(layout::layer_params(model, parallel, i),
                                                                 model, context, rotary.of(model, i), i));
    layers::append_with_recomputation(stage.blocks, std::move(stack), context.recompute);
    std::unique_ptr<FinalStates> states;
    if (stage_blocks.final_norm) {
      states =
          std::make_unique<FinalStates>(model, parallel, context, rotary.of(model, model.num_layers), word);
      if (states->word() != nullptr) word = states->word();
    }
    if (stage_blocks.head)
      stage.blocks.push_back(std::make_unique<HeadBlock>(model, parallel, context, std::move(states), word));
    else if (states)
      stage.blocks.push_back(std::make_unique<FinalBlock>(std::move(states)));
    stage.first = stage_blocks.embedding;
    stage.last = stage_blocks.head;
  }
  return built;
}

}  // namespace colonnade::models::gpt
