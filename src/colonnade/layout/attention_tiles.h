// Document bounds of a batch, and the tiles of queries and keys that attention computes instead of masking a
// full square. Plain arithmetic. Source: cu_seqlens of Dao 2023 (FlashAttention-2) and of Megatron's
// core/packed_seq_params.py.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/layout/context_parallel.h"

namespace colonnade::layout {

/// Documents of a micro-batch of b rows of s tokens: document i holds tokens [cu_seqlens[i], cu_seqlens[i +
/// 1]) of the b s tokens, counted row by row. Every row starts a document.
struct Documents {
  std::vector<std::int64_t> cu_seqlens;  ///< 0, ascending, b s; empty: every row is one document
  [[nodiscard]] bool any() const { return !cu_seqlens.empty(); }
  /// Tokens of the longest document; 0 without documents.
  [[nodiscard]] std::int64_t longest() const;
};

/// Throws Error unless the bounds cover `rows` rows of `length` tokens and every row starts a document.
void check_documents(const Documents& documents, std::int64_t rows, std::int64_t length);

/// Queries that attend to keys, in some rows of a batch. Rows and first query and key index the local
/// tensors, spans are positions in the sequence, in local order.
struct AttentionTile {
  enum class Mask : std::uint8_t {
    kNone,    ///< every query attends to every key
    kCausal,  ///< the same tokens: query i attends to keys 0 ... i
    kWindow,  ///< keys that are later than a query, or more than the window earlier, are masked
  };
  std::int64_t first_row = 0, rows = 0, first_query = 0, first_key = 0;
  std::vector<TokenSpan> queries, keys;
  Mask mask = Mask::kNone;
  [[nodiscard]] std::int64_t num_queries() const;
  [[nodiscard]] std::int64_t num_keys() const;
};

/// Documents and sliding window, which limit attention besides causality.
struct AttentionBounds {
  std::int64_t rows = 1, length = 0;  ///< rows of full sequences of this many tokens
  Documents documents;
  std::int64_t window = 0;  ///< W > 0: a query attends to itself and W earlier positions
};

/// Tiles of a block: together every pair of a query and a visible key once. Without documents and windows the
/// block itself. A document is one tile per pair of chunks; a window divides its queries into parts of about
/// the window's size, so that a mask has O(window^2) elements. Tiles of one full sequence (full_block) have
/// disjoint queries.
std::vector<AttentionTile> attention_tiles(const AttentionBlock& block, const AttentionBounds& bounds);

/// The block of a full sequence on one rank.
AttentionBlock full_block(std::int64_t length);

}  // namespace colonnade::layout
