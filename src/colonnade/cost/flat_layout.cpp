// See flat_layout.h.
#include "colonnade/cost/flat_layout.h"

#include "colonnade/config/stacks.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/layout/recompute.h"
#include "colonnade/schedule/kinds.h"

namespace colonnade::cost {
namespace {

using layout::BlockKind;

/// Calls f(spec) for every parameter of the given blocks.
template <typename F>
void for_each_block_param(const ModelBlocks& model, const layout::StageBlocks& stage,
                          const layout::FirstReaders& first, F&& f) {
  const config::Run& run = model.run();
  const auto& words = first.of(layout::HeldBy::kTiedEmbeddings);
  for (std::size_t i = 0; i < stage.blocks.size(); ++i) {
    const layout::BlockId& block = stage.blocks[i];
    const bool is_layer = block.kind == BlockKind::kLayer;
    if (is_layer && block == first.of(layout::shared_parameter(run.model, block)))
      layout::for_each(layout::relative_bias(run.model, !config::is_in_last_stack(run.model, block.index)),
                       f);
    model.for_each_param(block, f);
    // After the embedding, the blocks of the first kind that reads the words share a copy behind the last
    // one.
    const bool ends_kind = i + 1 == stage.blocks.size() || stage.blocks[i + 1].kind != block.kind;
    if (ends_kind && block.kind != BlockKind::kEmbedding && words && words->kind == block.kind)
      f(layout::embedding_params(run.model, run.parallel).word);
  }
}

}  // namespace

int for_each_stage_param(const ModelBlocks& model, const layout::StageBlocks& stage,
                         const layout::FirstReaders& first,
                         const std::function<void(const layout::ParamSpec& spec, int unit)>& use) {
  const config::Run& run = model.run();
  const layout::IndexRange layers = stage.layers();
  std::vector<layout::StageBlocks> units;
  if (stage.has(BlockKind::kEmbedding)) units.push_back({{{BlockKind::kEmbedding}}});
  std::int64_t layer = layers.first, left = layers.size();
  std::vector<std::int64_t> lengths = layout::recompute_spans(run.recompute, left);
  for (const std::int64_t length : lengths) left -= length;
  lengths.insert(lengths.end(), static_cast<std::size_t>(left), 1);
  for (const std::int64_t length : lengths) {
    units.push_back(layout::stage_of_layers({layer, layer + length}));
    layer += length;
  }
  layout::StageBlocks end;  // the blocks after the layers are one unit
  for (const layout::BlockId& block : stage.blocks)
    if (block.kind != BlockKind::kEmbedding && block.kind != BlockKind::kLayer) end.blocks.push_back(block);
  if (!end.empty()) units.push_back(end);
  for (std::size_t i = 0; i < units.size(); ++i)
    for_each_block_param(model, units[i], first,
                         [&](const layout::ParamSpec& spec) { use(spec, static_cast<int>(i)); });
  return static_cast<int>(units.size());
}

layout::FlatLayout flat_layout(const ModelBlocks& model, const layout::Mesh& mesh,
                               const std::vector<layout::StageBlocks>& stages) {
  const config::Run& run = model.run();
  const layout::FirstReaders first = model.first_readers(stages);
  const bool by_unit = layout::sharding_of(run.parallel) >= layout::Sharding::kGradients;
  const bool splits = by_unit && schedule::splits_backward(run.parallel);
  std::vector<std::vector<layout::FlatParam>> chunks;
  int before = 0;
  for (const layout::StageBlocks& stage : stages) {
    std::vector<layout::FlatParam>& chunk = chunks.emplace_back();
    before += for_each_stage_param(model, stage, first, [&](const layout::ParamSpec& spec, int unit) {
      if (!spec.trained) return;
      const layout::Shard part = layout::shard(spec, mesh.position(0));
      chunk.push_back({part.numel(), layout::extra_reduction(spec, part, mesh.size(layout::Axis::kTp)),
                       spec.param_group, by_unit ? before + unit : 0, splits && layout::can_defer_wgrad(spec),
                       spec.held_by});
    });
  }
  std::int64_t parameters = 0;
  for (const auto& chunk : chunks)
    for (const layout::FlatParam& param : chunk) parameters += param.numel;
  const int replicas = mesh.size(layout::data_axes(layout::ParamGroup::kDense));
  return layout::lay_out(chunks, layout::bucket_elements(run.parallel, replicas, parameters),
                         layout::replica_levels(run.parallel, mesh).shard_counts(),
                         layout::bucket_alignment(run.parallel));
}

}  // namespace colonnade::cost
