// Which blocks each pipeline rank and virtual stage owns: even, uneven and explicit layouts.
// Source: Megatron's core/transformer/pipeline_parallel_layer_layout.py and transformer_block.py.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/config/parallel.h"
#include "colonnade/layout/param.h"
#include "colonnade/schedule/placement.h"

namespace colonnade::layout {

/// The blocks of one virtual stage.
struct StageBlocks {
  bool embedding = false;
  std::int64_t first_layer = 0;  ///< 0-based global number; those of an encoder come first
  std::int64_t num_layers = 0;
  bool final_norm = false;  ///< with the layers of further tokens behind it
  bool head = false;        ///< output layer and loss
  /// Hidden states of a token that come in and go out in training: behind the final norm also those of
  /// further tokens. An evaluation has one.
  std::int64_t states_in = 1, states_out = 1;

  [[nodiscard]] bool empty() const { return !embedding && num_layers == 0 && !final_norm && !head; }
};

/// stages[v] for virtual stage v; size is a multiple of the pipeline size. layout::placement_of says which
/// rank holds which of them. Covers E once (first), every layer once in order, further tokens and L once
/// (last), or throws ConfigError with the counts it got.
std::vector<StageBlocks> split_stages(const config::Model& model, const config::Parallel& parallel);

/// Those of pipeline rank `rank`, by chunk.
std::vector<StageBlocks> stages_of_rank(const config::Model& model, const config::Parallel& parallel,
                                        int rank);

/// The pipeline ranks, ascending, that hold a parameter which `held_by` says of; `stages` as split_stages.
/// One where the model has no such part, or one rank holds it.
std::vector<int> holders(const config::Model& model, const config::Parallel& parallel,
                         const std::vector<StageBlocks>& stages, HeldBy held_by);

/// Parts of the model that may read the table of word embeddings.
enum class WordReader { kEmbedding, kFinalNorm, kHead };
/// Of the last block of a stage, which has the final norm, the head or both: further tokens look up rows, the
/// head of tied embeddings multiplies with the table. None: it does not read it.
std::optional<WordReader> word_reader_at_end(const config::Model& model, const StageBlocks& stage);

/// The parts of a rank that hold what several blocks read: the first of its stages' blocks that reads it.
struct FirstReaders {
  std::optional<WordReader> words;
  std::optional<std::int64_t> encoder, decoder;  ///< layers; none: the rank has none of them
};
/// `stages`: those of a rank, by chunk.
FirstReaders first_readers(const config::Model& model, const std::vector<StageBlocks>& stages);
/// Whether the last block of `stage` reads the table of word embeddings behind another one of its rank.
bool reads_words_again(const config::Model& model, const StageBlocks& stage, const FirstReaders& first);

/// Where `stages`, those of split_stages, are.
schedule::Placement placement_of(const std::vector<StageBlocks>& stages, const config::Parallel& parallel);

}  // namespace colonnade::layout
