// Splits the list embedding, layers, head over virtual stages.
#include "colonnade/layout/stages.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

#include "colonnade/base/error.h"
#include "colonnade/layout/layout_string.h"

namespace colonnade::layout {
namespace {

using config::Model;
using config::Parallel;

int chunks_of_even_split(const Model& model, const Parallel& p) {
  if (p.num_virtual_stages_per_pipeline_rank > 0 && p.num_layers_per_virtual_pipeline_stage > 0) {
    throw ConfigError(
        fmt::format("virtual stages: give one of --num-virtual-stages-per-pipeline-rank and "
                    "--num-layers-per-virtual-pipeline-stage; got {} and {}; leave one out",
                    p.num_virtual_stages_per_pipeline_rank, p.num_layers_per_virtual_pipeline_stage));
  }
  if (p.num_layers_per_virtual_pipeline_stage == 0)
    return p.num_virtual_stages_per_pipeline_rank > 0 ? p.num_virtual_stages_per_pipeline_rank
                                                      : schedule::default_chunks(p);
  if (p.decoder_first_pipeline_num_layers > 0 || p.decoder_last_pipeline_num_layers > 0) {
    throw ConfigError(fmt::format(
        "--num-layers-per-virtual-pipeline-stage: needs an even split; got first stage {} and last stage {} "
        "layers; use --num-virtual-stages-per-pipeline-rank",
        p.decoder_first_pipeline_num_layers, p.decoder_last_pipeline_num_layers));
  }
  const std::int64_t slots = model.all_layers() + (p.account_for_embedding_in_pipeline_split ? 1 : 0) +
                             (p.account_for_loss_in_pipeline_split ? 1 : 0);
  const std::int64_t block =
      std::int64_t{p.num_layers_per_virtual_pipeline_stage} * p.pipeline_model_parallel_size;
  if (slots % block != 0) {
    throw ConfigError(
        fmt::format("--num-layers-per-virtual-pipeline-stage: times the pipeline size must divide the layers "
                    "(with embedding and loss where they count); got {} * {} for {}; choose a divisor of {}",
                    p.num_layers_per_virtual_pipeline_stage, p.pipeline_model_parallel_size, slots, slots));
  }
  return static_cast<int>(slots / block);
}

/// Layers of each virtual stage when embedding and loss may count as layers.
std::vector<std::int64_t> even_counts(const Model& model, const Parallel& p, int chunks) {
  const int stages = p.pipeline_model_parallel_size * chunks;
  const std::int64_t embedding = p.account_for_embedding_in_pipeline_split ? 1 : 0;
  const std::int64_t loss = p.account_for_loss_in_pipeline_split ? 1 : 0;
  const std::int64_t slots = model.all_layers() + embedding + loss;
  if (slots % stages != 0) {
    throw ConfigError(fmt::format(
        "pipeline split: pipeline size * virtual stages must divide the layers (with embedding and loss "
        "where they count); got {} * {} for {}; use {}--pipeline-model-parallel-layout",
        p.pipeline_model_parallel_size, chunks, slots,
        model.has_encoder() ? ""
                            : "--decoder-first-pipeline-num-layers, --decoder-last-pipeline-num-layers or "));
  }
  std::vector<std::int64_t> counts(static_cast<std::size_t>(stages), slots / stages);
  counts.front() -= embedding;
  counts.back() -= loss;
  if (counts.front() < 0 || counts.back() < 0) {
    throw ConfigError(
        fmt::format("pipeline split: the stage of embedding and loss must have room for both; got {} slots "
                    "for {} stages; use fewer stages",
                    slots, stages));
  }
  return counts;
}

/// Layers of each virtual stage when the first or last pipeline rank has its own number.
std::vector<std::int64_t> uneven_counts(const Model& model, const Parallel& p, int chunks) {
  const std::int64_t first = p.decoder_first_pipeline_num_layers;
  const std::int64_t last = p.decoder_last_pipeline_num_layers;
  const int ranks = p.pipeline_model_parallel_size;
  const auto refuse = [&](std::string_view rule, std::string_view remedy) {
    throw ConfigError(
        fmt::format("uneven pipeline split: {}; got {} layers on the first, {} on the last of {} ranks, {} "
                    "layers in all, {} virtual stages per rank (0 layers: unset); {}",
                    rule, first, last, ranks, model.all_layers(), chunks, remedy));
  };
  if (p.account_for_embedding_in_pipeline_split || p.account_for_loss_in_pipeline_split) {
    refuse("embedding and loss cannot count as layers as well",
           "leave out --account-for-embedding-in-pipeline-split and --account-for-loss-in-pipeline-split");
  }
  if (ranks < 2) refuse("it needs at least two pipeline ranks", "raise --pipeline-model-parallel-size");
  const int middle_ranks = ranks - (first > 0 ? 1 : 0) - (last > 0 ? 1 : 0);
  const std::int64_t middle = model.all_layers() - first - last;
  if (middle < 0 || (middle_ranks == 0 && middle > 0)) {
    refuse("the ranks' layers must add up to all layers", "correct the numbers");
  }
  if (middle_ranks > 0 && middle % middle_ranks != 0) {
    refuse(fmt::format("the other {} layers must divide over the other {} ranks", middle, middle_ranks),
           "change the first or last number, or use --pipeline-model-parallel-layout");
  }
  const std::int64_t each = middle_ranks > 0 ? middle / middle_ranks : 0;
  if (first % chunks != 0 || last % chunks != 0 || each % chunks != 0) {
    refuse("the virtual stages must divide each rank's layers", "choose multiples of the virtual stages");
  }
  std::vector<std::int64_t> counts;
  const schedule::Placement placement = schedule::placement_of(p, chunks);
  for (int v = 0; v < ranks * chunks; ++v) {
    const int rank = placement.place(v).rank;
    const bool own_first = rank == 0 && first > 0;
    const bool own_last = rank == ranks - 1 && last > 0;
    counts.push_back((own_first ? first : own_last ? last : each) / chunks);
  }
  return counts;
}

std::vector<StageBlocks> from_counts(const std::vector<std::int64_t>& counts) {
  std::vector<StageBlocks> stages;
  std::int64_t layer = 0;
  for (const std::int64_t count : counts) {
    stages.push_back({.first_layer = layer, .num_layers = count});
    layer += count;
  }
  stages.front().embedding = true;
  stages.back().final_norm = stages.back().head = true;
  return stages;
}

void refuse_beside_layout(const Parallel& p) {
  const auto refuse = [](bool given, std::string_view flag) {
    if (given) {
      throw ConfigError(
          fmt::format("--pipeline-model-parallel-layout: says the whole split by itself; got {} as well; "
                      "leave one out",
                      flag));
    }
  };
  refuse(p.num_virtual_stages_per_pipeline_rank > 0, "--num-virtual-stages-per-pipeline-rank");
  refuse(p.num_layers_per_virtual_pipeline_stage > 0, "--num-layers-per-virtual-pipeline-stage");
  refuse(p.decoder_first_pipeline_num_layers > 0, "--decoder-first-pipeline-num-layers");
  refuse(p.decoder_last_pipeline_num_layers > 0, "--decoder-last-pipeline-num-layers");
  refuse(p.account_for_embedding_in_pipeline_split, "--account-for-embedding-in-pipeline-split");
  refuse(p.account_for_loss_in_pipeline_split, "--account-for-loss-in-pipeline-split");
}

}  // namespace

std::vector<StageBlocks> split_stages(const Model& model, const Parallel& p) {
  if (model.num_layers < 1 || p.pipeline_model_parallel_size < 1) {
    throw ConfigError(
        fmt::format("pipeline split: --num-layers and --pipeline-model-parallel-size must be at least 1; got "
                    "{} and {}; set both",
                    model.num_layers, p.pipeline_model_parallel_size));
  }
  if (!p.pipeline_model_parallel_layout.empty()) {
    refuse_beside_layout(p);
    return parse_layout(p.pipeline_model_parallel_layout,
                        {model.encoder_num_layers, model.num_layers, model.mtp_num_layers},
                        p.pipeline_model_parallel_size);
  }
  const int chunks = chunks_of_even_split(model, p);
  const bool uneven = p.decoder_first_pipeline_num_layers > 0 || p.decoder_last_pipeline_num_layers > 0;
  return from_counts(uneven ? uneven_counts(model, p, chunks) : even_counts(model, p, chunks));
}

std::vector<int> holders(const Model& model, const Parallel& p, const std::vector<StageBlocks>& stages,
                         HeldBy held_by) {
  const schedule::Placement placement = placement_of(stages, p);
  const auto holds = [&](const StageBlocks& s) {
    const std::int64_t end = s.first_layer + s.num_layers;
    switch (held_by) {
      case HeldBy::kOneStage:
        return false;
      case HeldBy::kEnds:
        return s.embedding || word_reader_at_end(model, s).has_value();
      case HeldBy::kEncoder:
        return s.num_layers > 0 && s.first_layer < model.encoder_num_layers;
      case HeldBy::kDecoder:
        return s.num_layers > 0 && end > model.encoder_num_layers;
    }
    return false;
  };
  std::set<int> ranks;
  for (int stage = 0; stage < placement.stages(); ++stage)
    if (holds(stages[static_cast<std::size_t>(stage)])) ranks.insert(placement.place(stage).rank);
  return {ranks.begin(), ranks.end()};
}

std::optional<WordReader> word_reader_at_end(const Model& model, const StageBlocks& stage) {
  if (stage.final_norm && model.mtp_num_layers > 0) return WordReader::kFinalNorm;
  if (stage.head && !model.untie_embeddings_and_output_weights) return WordReader::kHead;
  return std::nullopt;
}

FirstReaders first_readers(const Model& model, const std::vector<StageBlocks>& stages) {
  FirstReaders first;
  for (const StageBlocks& stage : stages) {
    if (!first.words)
      first.words = stage.embedding ? WordReader::kEmbedding : word_reader_at_end(model, stage);
    for (std::int64_t i = stage.first_layer; i < stage.first_layer + stage.num_layers; ++i) {
      auto& of_stack = i < model.encoder_num_layers ? first.encoder : first.decoder;
      if (!of_stack) of_stack = i;
    }
  }
  return first;
}

bool reads_words_again(const Model& model, const StageBlocks& stage, const FirstReaders& first) {
  const auto reader = word_reader_at_end(model, stage);
  return reader && reader != first.words;
}

schedule::Placement placement_of(const std::vector<StageBlocks>& stages, const Parallel& p) {
  return schedule::placement_of(p, static_cast<int>(stages.size()) / p.pipeline_model_parallel_size);
}

std::vector<StageBlocks> stages_of_rank(const Model& model, const Parallel& p, int rank) {
  const std::vector<StageBlocks> stages = split_stages(model, p);
  const schedule::Placement placement = placement_of(stages, p);
  std::vector<StageBlocks> own;
  for (int chunk = 0; chunk < placement.chunks(); ++chunk)
    own.push_back(stages[static_cast<std::size_t>(placement.stage(rank, chunk))]);
  return own;
}

}  // namespace colonnade::layout
