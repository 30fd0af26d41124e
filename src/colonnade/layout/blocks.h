// A model as a list of blocks, each a kind with an index. Pipeline stages, parameters and costs follow it.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/layout/layer_kind.h"

namespace colonnade::layout {

enum class BlockKind : std::uint8_t {
  kEmbedding,
  kLayer,      ///< transformer layer; layer_kind() says which
  kFinalNorm,  ///< norm before the head
  kMtpLayer,   ///< multi-token prediction layer, after the final norm
  kHead,       ///< output layer and loss
};

struct BlockId {
  BlockKind kind = BlockKind::kLayer;
  std::int64_t index = 0;  ///< 0-based within the kind; of layers the global number
  bool operator==(const BlockId&) const = default;
};

/// Indices [first, last); `for (const std::int64_t i : range)` visits them in order. (Clang 14 cannot read
/// the views of the standard library.)
struct IndexRange {
  std::int64_t first = 0, last = 0;
  struct Iterator {
    std::int64_t index;
    std::int64_t operator*() const { return index; }
    Iterator& operator++() {
      ++index;
      return *this;
    }
    bool operator==(const Iterator&) const = default;
  };
  [[nodiscard]] Iterator begin() const { return {first}; }
  [[nodiscard]] Iterator end() const { return {last}; }
  [[nodiscard]] std::int64_t size() const { return last - first; }
};

/// Blocks of a model in order: embedding, layers, final norm, MTP layers, head.
std::vector<BlockId> model_blocks(const config::Model& model);

/// Blocks of one virtual stage: a run of model_blocks(), so that its layers have consecutive numbers.
struct StageBlocks {
  std::vector<BlockId> blocks;
  /// Hidden states per token at input and output in training: after the final norm also those of MTP layers.
  /// An evaluation has one.
  std::int64_t states_in = 1, states_out = 1;

  [[nodiscard]] bool has(BlockKind kind) const;
  /// Global numbers of the stage's layers.
  [[nodiscard]] IndexRange layers() const;
  [[nodiscard]] bool empty() const { return blocks.empty(); }
};

/// A stage of the given layers only.
StageBlocks stage_of_layers(const IndexRange& layers);

}  // namespace colonnade::layout
