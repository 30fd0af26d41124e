// Blocks of each pipeline rank and virtual stage: even, uneven and explicit layouts.
// Source: Megatron's core/transformer/pipeline_parallel_layer_layout.py and transformer_block.py.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/config/parallel.h"
#include "colonnade/layout/blocks.h"
#include "colonnade/layout/param.h"
#include "colonnade/schedule/placement.h"

namespace colonnade::layout {

/// Blocks of every virtual stage; the size is a multiple of the pipeline size. layout::placement_of maps
/// stages to ranks. Together they are model_blocks(). Throws ConfigError for an invalid split.
std::vector<StageBlocks> split_stages(const config::Model& model, const config::Parallel& parallel);
/// Number of virtual stages, without listing their blocks. Throws as split_stages does.
int num_stages(const config::Model& model, const config::Parallel& parallel);

/// `stages`, all of split_stages, by pipeline rank and chunk.
std::vector<std::vector<StageBlocks>> stages_by_rank(std::vector<StageBlocks> stages,
                                                     const config::Parallel& parallel);
/// Stages of pipeline rank `rank`, by chunk.
std::vector<StageBlocks> stages_of_rank(const config::Model& model, const config::Parallel& parallel,
                                        int rank);

/// Pipeline ranks, ascending, that hold a parameter with this `held_by`; `stages` as split_stages. At most
/// one rank if no parameter is shared.
std::vector<int> holders(const config::Model& model, const config::Parallel& parallel,
                         const std::vector<StageBlocks>& stages, HeldBy held_by);

/// Shared parameter that `block` reads: the word embeddings, of which blocks look up rows or with which a
/// tied head multiplies, or the relative position bias of its stack. HeldBy::kOneStage: none.
HeldBy shared_parameter(const config::Model& model, const BlockId& block);

/// First reader of each shared parameter on a rank; it holds the parameter. Empty: the rank does not read it.
class FirstReaders {
 public:
  [[nodiscard]] const std::optional<BlockId>& of(HeldBy held_by) const {
    return first_[static_cast<std::size_t>(held_by)];
  }
  void add(HeldBy held_by, const BlockId& reader) {
    auto& first = first_[static_cast<std::size_t>(held_by)];
    if (!first) first = reader;
  }

 private:
  std::array<std::optional<BlockId>, kNumHeldBy> first_;
};
/// First readers on a rank with these `stages`, by chunk.
FirstReaders first_readers(const config::Model& model, const std::vector<StageBlocks>& stages);
/// First block of `stage` after the embedding that reads the word embeddings.
std::optional<BlockId> word_reader_after_layers(const config::Model& model, const StageBlocks& stage);
/// Whether that block reads word embeddings that another block of its rank holds.
bool reuses_word_embeddings(const config::Model& model, const StageBlocks& stage, const FirstReaders& first);

/// Placement of the `stages` of split_stages.
schedule::Placement placement_of(const std::vector<StageBlocks>& stages, const config::Parallel& parallel);

}  // namespace colonnade::layout
