// See held.h.
#include "colonnade/plan/held.h"

#include "colonnade/plan/params/gpt.h"
#include "colonnade/plan/recompute.h"
#include "colonnade/plan/schedule_kinds.h"

namespace colonnade::plan {
namespace {

/// Calls f(spec) for every parameter of some blocks.
template <typename F>
void for_each_of_blocks(const config::Run& run, const StageBlocks& stage, const FirstReaders& first, F&& f) {
  const auto copy_of_words = [&](WordReader reader) {
    if (first.words == reader) f(embedding_params(run.model, run.parallel).word);
  };
  if (stage.embedding) for_each(embedding_params(run.model, run.parallel), f);
  for (std::int64_t i = stage.first_layer; i < stage.first_layer + stage.num_layers; ++i) {
    if (i == first.encoder || i == first.decoder)
      for_each(relative_bias(run.model, i < run.model.encoder_num_layers), f);
    for_each(layer_params(run.model, run.parallel, i), f);
  }
  if (stage.final_norm) {
    for_each(final_params(run.model, run.parallel), f);
    copy_of_words(WordReader::kFinalNorm);
  }
  if (stage.head) {
    for_each(head_params(run.model, run.parallel), f);
    copy_of_words(WordReader::kHead);
  }
}

}  // namespace

int for_each_held(const config::Run& run, const StageBlocks& stage, const FirstReaders& first,
                  const std::function<void(const ParamSpec& spec, int unit)>& use) {
  std::vector<StageBlocks> units;
  if (stage.embedding) units.push_back({.embedding = true});
  std::int64_t layer = stage.first_layer, left = stage.num_layers;
  std::vector<std::int64_t> lengths = stretches_made_again(run.recompute, stage.num_layers);
  for (const std::int64_t length : lengths) left -= length;
  lengths.insert(lengths.end(), static_cast<std::size_t>(left), 1);
  for (const std::int64_t length : lengths) {
    units.push_back({.first_layer = layer, .num_layers = length});
    layer += length;
  }
  if (stage.final_norm || stage.head) units.push_back({.final_norm = stage.final_norm, .head = stage.head});
  for (std::size_t i = 0; i < units.size(); ++i)
    for_each_of_blocks(run, units[i], first, [&](const ParamSpec& spec) { use(spec, static_cast<int>(i)); });
  return static_cast<int>(units.size());
}

FlatLayout flat_layout(const config::Run& run, const Mesh& mesh, const std::vector<StageBlocks>& stages) {
  const FirstReaders first = first_readers(run.model, stages);
  const bool by_unit = sharding_of(run.parallel) >= Sharding::kGradients;
  const bool splits = by_unit && splits_backward(run.parallel);
  std::vector<std::vector<FlatParam>> chunks;
  int before = 0;
  for (const StageBlocks& stage : stages) {
    std::vector<FlatParam>& chunk = chunks.emplace_back();
    before += for_each_held(run, stage, first, [&](const ParamSpec& spec, int unit) {
      if (!spec.trained) return;
      const Shard part = shard(spec, mesh.position(0));
      chunk.push_back({part.numel(), further_sum(spec, part, mesh.size(Axis::kTp)), spec.family,
                       by_unit ? before + unit : 0, splits && may_wait(spec), spec.held_by});
    });
  }
  std::int64_t parameters = 0;
  for (const auto& chunk : chunks)
    for (const FlatParam& param : chunk) parameters += param.numel;
  const int replicas = mesh.size(data_axes(Family::kDense));
  return lay_out(chunks, bucket_elements(run.parallel, replicas, parameters),
                 levels_of(run.parallel, mesh).parts(), bucket_alignment(run.parallel));
}

}  // namespace colonnade::plan
