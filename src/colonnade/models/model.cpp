// See model.h.
#include "colonnade/models/model.h"

#include <algorithm>
#include <array>
#include <optional>

#include "colonnade/config/stacks.h"
#include "colonnade/layers/recompute.h"
#include "colonnade/layers/transformer_layer.h"
#include "colonnade/layout/layer_kind.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/layout/stages.h"
#include "colonnade/models/bert/head_block.h"
#include "colonnade/models/gpt/embedding_block.h"
#include "colonnade/models/gpt/head_block.h"
#include "colonnade/models/t5/blocks.h"

namespace colonnade::models {
namespace {

using layout::BlockKind;
using SharedTable = std::shared_ptr<const ops::RotaryTable>;

/// Rotary tables of global layers and of sliding-window layers, which may have a base of their own (Gemma 3).
struct Rotary {
  Rotary(const config::Model& model, const layers::Context& context, std::int64_t max_sequence) {
    if (!model.has_rotary()) return;
    const std::int64_t length = std::max(max_sequence, model.max_position_embeddings);
    const auto make = [&](const config::Model& m) {
      return std::make_shared<const ops::RotaryTable>(
          ops::rotary_table(m, length, context.options.device(), max_sequence));
    };
    global = local = make(model);
    if (!model.rotary_base_local || model.window_size == 0) return;
    config::Model unscaled = model;
    unscaled.position_embedding = config::PositionEmbedding::kRope;
    unscaled.rope_type = config::RopeType::kRope;
    unscaled.rotary_base = *model.rotary_base_local;
    unscaled.use_rope_scaling = false;
    unscaled.longrope_short_factor.clear();
    unscaled.rotary_seq_len_interpolation_factor = 1;
    local = make(unscaled);
  }
  /// Table of `layer`. Numbers beyond the last layer (MTP layers) have its table.
  [[nodiscard]] const SharedTable& of(const config::Model& model, std::int64_t layer) const {
    if (!layout::has_rope(model, layer)) return none;
    return layout::attention_window(model, layer) > 0 ? local : global;
  }
  SharedTable global, local, none;
};

/// Builds the stages of one rank in model chunk order.
class Builder {
 public:
  Builder(const std::vector<layout::StageBlocks>& blocks, const config::Model& model,
          const config::Parallel& parallel, const layers::Context& context, std::int64_t max_sequence)
      : model_(model),
        parallel_(parallel),
        context_(context),
        rotary_(model, context, max_sequence),
        first_readers_(layout::first_readers(model, blocks)) {}

  tensor::Stage stage(const layout::StageBlocks& of) {
    tensor::Stage stage;
    stage.first = of.has(BlockKind::kEmbedding);
    stage.last = of.has(BlockKind::kHead);
    layers::Blocks layers;
    std::unique_ptr<gpt::FinalStates> states;
    for (const layout::BlockId& id : of.blocks) {
      switch (id.kind) {
        case BlockKind::kEmbedding:
          stage.blocks.push_back(embedding());
          break;
        case BlockKind::kLayer:
          layers.push_back(layer(id.index));
          break;
        case BlockKind::kFinalNorm:
          states = std::make_unique<gpt::FinalStates>(model_, parallel_, context_);
          break;
        case BlockKind::kMtpLayer:
          add_mtp_layer(*states);
          break;
        case BlockKind::kHead:
          break;  // follows the layers
      }
    }
    layers::append_with_recomputation(stage.blocks, std::move(layers), context_.recompute);
    if (stage.last)
      stage.blocks.push_back(head(std::move(states)));
    else if (states)
      stage.blocks.push_back(std::make_unique<gpt::FinalBlock>(std::move(states)));
    return stage;
  }

 private:
  std::unique_ptr<tensor::Block> embedding() {
    std::unique_ptr<gpt::EmbeddingBlock> block;
    if (config::has_several_stacks(model_))
      block = std::make_unique<t5::EmbeddingBlock>(model_, parallel_, context_);
    else
      block = std::make_unique<gpt::EmbeddingBlock>(model_, parallel_, context_);
    word_ = block->word();
    return block;
  }

  std::unique_ptr<tensor::Block> layer(std::int64_t number) {
    if (config::has_several_stacks(model_)) return t5_layer(number);
    const layers::MaskSpec mask_spec =
        model_.bidirectional ? layers::MaskSpec{.causal = false, .padding = tensor::Field::kPadding}
                             : layers::MaskSpec{};
    return std::make_unique<layers::TransformerLayer>(layout::layer_params(model_, parallel_, number), model_,
                                                      context_, rotary_.of(model_, number), number,
                                                      mask_spec);
  }

  std::unique_ptr<tensor::Block> t5_layer(std::int64_t number) {
    const layout::BlockId id{BlockKind::kLayer, number};
    auto& table = bias_tables_.at(config::stack_of_layer(model_, number));
    if (id == first_readers_.of(layout::shared_parameter(model_, id)))
      table.emplace(model_, context_, number);
    return std::make_unique<t5::LayerBlock>(model_, parallel_, context_, rotary_.of(model_, number), number,
                                            *table);
  }

  void add_mtp_layer(gpt::FinalStates& states) {
    states.add_mtp_layer(model_, parallel_, context_, rotary_.of(model_, model_.num_layers), word_);
    word_ = states.word();
  }

  std::unique_ptr<tensor::Block> head(std::unique_ptr<gpt::FinalStates> states) {
    if (model_.bidirectional)
      return std::make_unique<bert::HeadBlock>(model_, parallel_, context_, std::move(states), word_);
    auto head = std::make_unique<gpt::HeadBlock>(model_, parallel_, context_, std::move(states), word_);
    if (!config::has_several_stacks(model_)) return head;
    return std::make_unique<t5::HeadBlock>(context_, std::move(head));
  }

  const config::Model& model_;
  const config::Parallel& parallel_;
  const layers::Context& context_;
  Rotary rotary_;
  layout::FirstReaders first_readers_;
  tensor::Parameter* word_ = nullptr;                                ///< word embedding table on this rank
  std::array<std::optional<t5::RelativeBiasTable>, 2> bias_tables_;  ///< by stack
};

}  // namespace

std::vector<tensor::Stage> build(const std::vector<layout::StageBlocks>& blocks, const config::Model& model,
                                 const config::Parallel& parallel, const layers::Context& context,
                                 std::int64_t max_sequence) {
  Builder builder(blocks, model, parallel, context, max_sequence);
  std::vector<tensor::Stage> stages;
  for (const layout::StageBlocks& stage : blocks) stages.push_back(builder.stage(stage));
  return stages;
}

}  // namespace colonnade::models
