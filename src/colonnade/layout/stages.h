// Blocks of each pipeline rank and virtual stage: even, uneven and explicit layouts.
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

/// Blocks of one virtual stage.
struct StageBlocks {
  bool embedding = false;
  std::int64_t first_layer = 0;  ///< 0-based global number; encoder layers come first
  std::int64_t num_layers = 0;
  bool final_norm = false;  ///< with the MTP layers after it
  bool head = false;        ///< output layer and loss
  /// Hidden states per token at input and output in training: after the final norm also those of MTP layers.
  /// An evaluation has one.
  std::int64_t states_in = 1, states_out = 1;

  [[nodiscard]] bool empty() const { return !embedding && num_layers == 0 && !final_norm && !head; }
};

/// Blocks of every virtual stage; the size is a multiple of the pipeline size. layout::placement_of maps
/// stages to ranks. The embedding comes first, then every layer once in order, MTP layers, and the head last.
/// Throws ConfigError for an invalid split.
std::vector<StageBlocks> split_stages(const config::Model& model, const config::Parallel& parallel);

/// Stages of pipeline rank `rank`, by chunk.
std::vector<StageBlocks> stages_of_rank(const config::Model& model, const config::Parallel& parallel,
                                        int rank);

/// Pipeline ranks, ascending, that hold a parameter with this `held_by`; `stages` as split_stages. At most
/// one rank if no parameter is shared.
std::vector<int> holders(const config::Model& model, const config::Parallel& parallel,
                         const std::vector<StageBlocks>& stages, HeldBy held_by);

/// Blocks that may read the word embeddings.
enum class WordEmbeddingReader { kEmbedding, kFinalNorm, kHead };
/// How the last block of a stage (final norm, head or both) reads the word embeddings: MTP layers look up
/// rows, a tied output layer multiplies with them. nullopt: not at all.
std::optional<WordEmbeddingReader> last_block_word_reader(const config::Model& model,
                                                          const StageBlocks& stage);

/// First reader of each shared parameter on a rank; it holds the parameter.
struct FirstReaders {
  std::optional<WordEmbeddingReader> words;
  std::optional<std::int64_t> encoder, decoder;  ///< first layer of the stack; nullopt: the rank has none
};
/// First readers on a rank with these `stages`, by chunk.
FirstReaders first_readers(const config::Model& model, const std::vector<StageBlocks>& stages);
/// Whether the last block of `stage` reads word embeddings that another block of its rank holds.
bool reuses_word_embeddings(const config::Model& model, const StageBlocks& stage, const FirstReaders& first);

/// Placement of the `stages` of split_stages.
schedule::Placement placement_of(const std::vector<StageBlocks>& stages, const config::Parallel& parallel);

}  // namespace colonnade::layout
