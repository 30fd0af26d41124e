// Splits embedding, layers and head over virtual stages.
#include "colonnade/layout/stages.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

#include "colonnade/base/error.h"
#include "colonnade/config/stacks.h"
#include "colonnade/layout/layout_string.h"

namespace colonnade::layout {
namespace {

using config::Model;
using config::Parallel;

int chunks_of_even_split(const Model& model, const Parallel& p) {
  if (p.num_virtual_stages_per_pipeline_rank > 0 && p.num_layers_per_virtual_pipeline_stage > 0) {
    throw ConfigError(
        fmt::format("--num-virtual-stages-per-pipeline-rank is not supported with "
                    "--num-layers-per-virtual-pipeline-stage; got {} and {}; remove one of them",
                    p.num_virtual_stages_per_pipeline_rank, p.num_layers_per_virtual_pipeline_stage));
  }
  if (p.num_layers_per_virtual_pipeline_stage == 0)
    return p.num_virtual_stages_per_pipeline_rank > 0 ? p.num_virtual_stages_per_pipeline_rank
                                                      : schedule::default_chunks(p);
  if (p.decoder_first_pipeline_num_layers > 0 || p.decoder_last_pipeline_num_layers > 0) {
    throw ConfigError(fmt::format(
        "--num-layers-per-virtual-pipeline-stage requires an even split; got {} layers on the first and {} "
        "on the last rank; use --num-virtual-stages-per-pipeline-rank",
        p.decoder_first_pipeline_num_layers, p.decoder_last_pipeline_num_layers));
  }
  const std::int64_t slots = model.total_layers() + (p.account_for_embedding_in_pipeline_split ? 1 : 0) +
                             (p.account_for_loss_in_pipeline_split ? 1 : 0);
  const std::int64_t block =
      std::int64_t{p.num_layers_per_virtual_pipeline_stage} * p.pipeline_model_parallel_size;
  if (slots % block != 0) {
    throw ConfigError(fmt::format(
        "--num-layers-per-virtual-pipeline-stage x pipeline size must divide the layers (with embedding and "
        "loss if they count); got {} * {} for {}; choose a divisor of {}",
        p.num_layers_per_virtual_pipeline_stage, p.pipeline_model_parallel_size, slots, slots));
  }
  return static_cast<int>(slots / block);
}

/// Layers per virtual stage of an even split, in which embedding and loss may count as layers.
std::vector<std::int64_t> even_counts(const Model& model, const Parallel& p, int chunks) {
  const int stages = p.pipeline_model_parallel_size * chunks;
  const std::int64_t embedding = p.account_for_embedding_in_pipeline_split ? 1 : 0;
  const std::int64_t loss = p.account_for_loss_in_pipeline_split ? 1 : 0;
  const std::int64_t slots = model.total_layers() + embedding + loss;
  if (slots % stages != 0) {
    throw ConfigError(fmt::format(
        "pipeline size x virtual stages must divide the layers (with embedding and loss if they count); got "
        "{} * {} for {}; use {}--pipeline-model-parallel-layout",
        p.pipeline_model_parallel_size, chunks, slots,
        config::has_several_stacks(model)
            ? ""
            : "--decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers or "));
  }
  std::vector<std::int64_t> counts(static_cast<std::size_t>(stages), slots / stages);
  counts.front() -= embedding;
  counts.back() -= loss;
  if (counts.front() < 0 || counts.back() < 0) {
    throw ConfigError(fmt::format(
        "pipeline split must have space for embedding and loss in their stages; got {} layers with both for "
        "{} stages; use fewer stages",
        slots, stages));
  }
  return counts;
}

/// Layers per virtual stage if the first or last pipeline rank has its own number.
std::vector<std::int64_t> uneven_counts(const Model& model, const Parallel& p, int chunks) {
  const std::int64_t first = p.decoder_first_pipeline_num_layers;
  const std::int64_t last = p.decoder_last_pipeline_num_layers;
  const int ranks = p.pipeline_model_parallel_size;
  const auto reject = [&](std::string_view rule, std::string_view fix) {
    throw ConfigError(fmt::format(
        "uneven pipeline split {}; got {} layers on the first, {} on the last of {} ranks, {} layers in "
        "total, {} virtual stages per rank (0 layers: unset); {}",
        rule, first, last, ranks, model.total_layers(), chunks, fix));
  };
  if (p.account_for_embedding_in_pipeline_split || p.account_for_loss_in_pipeline_split) {
    reject("must not count embedding and loss as layers",
           "remove --account-for-embedding-in-pipeline-split and --account-for-loss-in-pipeline-split");
  }
  if (ranks < 2) reject("requires at least two pipeline ranks", "raise --pipeline-model-parallel-size");
  const int middle_ranks = ranks - (first > 0 ? 1 : 0) - (last > 0 ? 1 : 0);
  const std::int64_t middle = model.total_layers() - first - last;
  if (middle < 0 || (middle_ranks == 0 && middle > 0)) {
    reject("must have layers per rank that add up to all layers", "fix the numbers");
  }
  if (middle_ranks > 0 && middle % middle_ranks != 0) {
    reject(
        fmt::format("must divide the other {} layers evenly over the other {} ranks", middle, middle_ranks),
        "change the first or last number, or use --pipeline-model-parallel-layout");
  }
  const std::int64_t each = middle_ranks > 0 ? middle / middle_ranks : 0;
  if (first % chunks != 0 || last % chunks != 0 || each % chunks != 0) {
    reject("must have a multiple of the virtual stages as layers of each rank", "choose such numbers");
  }
  std::vector<std::int64_t> counts;
  const schedule::Placement placement = schedule::placement_of(p, chunks);
  for (int v = 0; v < ranks * chunks; ++v) {
    const int rank = placement.location(v).rank;
    const bool own_first = rank == 0 && first > 0;
    const bool own_last = rank == ranks - 1 && last > 0;
    counts.push_back((own_first ? first : own_last ? last : each) / chunks);
  }
  return counts;
}

std::vector<StageBlocks> from_counts(const Model& model, const std::vector<std::int64_t>& counts) {
  const std::vector<BlockId> all = model_blocks(model);
  std::vector<StageBlocks> stages(counts.size());
  auto next = all.begin();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto end = i + 1 == counts.size() ? all.end() : next + counts[i] + (i == 0 ? 1 : 0);  // embedding
    stages[i].blocks.assign(next, end);
    next = end;
  }
  return stages;
}

void reject_with_layout(const Parallel& p) {
  const auto reject = [](bool given, std::string_view flag) {
    if (given) {
      throw ConfigError(fmt::format(
          "--pipeline-model-parallel-layout defines the whole split; got {} as well; remove one of them",
          flag));
    }
  };
  reject(p.num_virtual_stages_per_pipeline_rank > 0, "--num-virtual-stages-per-pipeline-rank");
  reject(p.num_layers_per_virtual_pipeline_stage > 0, "--num-layers-per-virtual-pipeline-stage");
  reject(p.decoder_first_pipeline_num_layers > 0, "--decoder-first-pipeline-num-layers");
  reject(p.decoder_last_pipeline_num_layers > 0, "--decoder-last-pipeline-num-layers");
  reject(p.account_for_embedding_in_pipeline_split, "--account-for-embedding-in-pipeline-split");
  reject(p.account_for_loss_in_pipeline_split, "--account-for-loss-in-pipeline-split");
}

/// Layers per virtual stage without a layout string.
std::vector<std::int64_t> layer_counts(const Model& model, const Parallel& p) {
  const int chunks = chunks_of_even_split(model, p);
  const bool uneven = p.decoder_first_pipeline_num_layers > 0 || p.decoder_last_pipeline_num_layers > 0;
  return uneven ? uneven_counts(model, p, chunks) : even_counts(model, p, chunks);
}

/// Whether a layout string defines the split.
bool has_layout(const Model& model, const Parallel& p) {
  if (model.num_layers < 1 || p.pipeline_model_parallel_size < 1) {
    throw ConfigError(fmt::format(
        "--num-layers and --pipeline-model-parallel-size must be at least 1; got {} and {}; set both",
        model.num_layers, p.pipeline_model_parallel_size));
  }
  if (p.pipeline_model_parallel_layout.empty()) return false;
  reject_with_layout(p);
  return true;
}

}  // namespace

std::vector<StageBlocks> split_stages(const Model& model, const Parallel& p) {
  if (has_layout(model, p))
    return parse_layout(p.pipeline_model_parallel_layout, model, p.pipeline_model_parallel_size);
  return from_counts(model, layer_counts(model, p));
}

int num_stages(const Model& model, const Parallel& p) {
  if (has_layout(model, p)) return static_cast<int>(split_stages(model, p).size());
  return static_cast<int>(layer_counts(model, p).size());
}

HeldBy shared_parameter(const Model& model, const BlockId& block) {
  switch (block.kind) {
    case BlockKind::kEmbedding:
    case BlockKind::kMtpLayer:
      return HeldBy::kTiedEmbeddings;
    case BlockKind::kLayer:
      return held_by_stack(config::is_in_last_stack(model, block.index));
    case BlockKind::kFinalNorm:
      return HeldBy::kOneStage;
    case BlockKind::kHead:
      return model.untie_embeddings_and_output_weights ? HeldBy::kOneStage : HeldBy::kTiedEmbeddings;
  }
  return HeldBy::kOneStage;
}

std::vector<int> holders(const Model& model, const Parallel& p, const std::vector<StageBlocks>& stages,
                         HeldBy held_by) {
  if (held_by == HeldBy::kOneStage) return {};
  const schedule::Placement placement = placement_of(stages, p);
  std::set<int> ranks;
  for (int stage = 0; stage < placement.stages(); ++stage)
    for (const BlockId& block : stages[static_cast<std::size_t>(stage)].blocks)
      if (shared_parameter(model, block) == held_by) ranks.insert(placement.location(stage).rank);
  return {ranks.begin(), ranks.end()};
}

FirstReaders first_readers(const Model& model, const std::vector<StageBlocks>& stages) {
  FirstReaders first;
  for (const StageBlocks& stage : stages)
    for (const BlockId& block : stage.blocks)
      if (const HeldBy held_by = shared_parameter(model, block); held_by != HeldBy::kOneStage)
        first.add(held_by, block);
  return first;
}

std::optional<BlockId> word_reader_after_layers(const Model& model, const StageBlocks& stage) {
  for (const BlockId& block : stage.blocks)
    if (block.kind != BlockKind::kEmbedding && shared_parameter(model, block) == HeldBy::kTiedEmbeddings)
      return block;
  return std::nullopt;
}

bool reuses_word_embeddings(const Model& model, const StageBlocks& stage, const FirstReaders& first) {
  const auto reader = word_reader_after_layers(model, stage);
  return reader && reader != first.of(HeldBy::kTiedEmbeddings);
}

schedule::Placement placement_of(const std::vector<StageBlocks>& stages, const Parallel& p) {
  return schedule::placement_of(p, static_cast<int>(stages.size()) / p.pipeline_model_parallel_size);
}

std::vector<std::vector<StageBlocks>> stages_by_rank(std::vector<StageBlocks> stages, const Parallel& p) {
  const schedule::Placement placement = placement_of(stages, p);
  std::vector<std::vector<StageBlocks>> ranks(static_cast<std::size_t>(placement.ranks()));
  for (int rank = 0; rank < placement.ranks(); ++rank)
    for (int chunk = 0; chunk < placement.chunks(); ++chunk)
      ranks[static_cast<std::size_t>(rank)].push_back(
          std::move(stages[static_cast<std::size_t>(placement.stage(rank, chunk))]));
  return ranks;
}

std::vector<StageBlocks> stages_of_rank(const Model& model, const Parallel& p, int rank) {
  return stages_by_rank(split_stages(model, p), p)[static_cast<std::size_t>(rank)];
}

}  // namespace colonnade::layout
