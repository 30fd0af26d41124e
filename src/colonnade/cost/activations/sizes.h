// Sizes that all formulas of activations are made of. Letters: n tokens, r tokens between the parallel
// stretches, e element size.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/layout/context_parallel.h"

namespace colonnade::cost {

inline constexpr std::int64_t kFp32 = 4;
inline constexpr std::int64_t kInt64 = 8;

/// Sizes of one micro-batch on one rank.
struct Sizes {
  explicit Sizes(const config::Run& run);

  /// Bytes of [n, h].
  [[nodiscard]] std::int64_t whole() const { return n * m.hidden_size * e; }
  /// Whether the layer with a number is a mixture; those behind the last one are of its kind.
  [[nodiscard]] bool has_experts(std::int64_t layer) const {
    return experts_[static_cast<std::size_t>(std::min(layer, m.num_layers - 1))];
  }

  const config::Model& m;
  std::int64_t tp;
  bool by_sequence;
  std::int64_t b;
  std::int64_t cp, length;  ///< ranks that share a sequence, tokens of the whole
  bool further_in_batch;    ///< what further tokens read: of a cut sequence, and where tokens weigh the same
  std::int64_t s, n, r, e;
  std::int64_t heads, groups, q, kv, v, out;  ///< of this rank: channels of queries, keys, values and result
  std::int64_t wide;                  ///< channels of a head between context ranks, which know one width
  std::int64_t ffn, fc1, vocabulary;  ///< columns of this rank
  std::int64_t hidden;                ///< bytes of [r, h]
  std::int64_t gathered;              ///< bytes of a whole sequence, where it is cut
  std::int64_t ep, etp, k;
  std::int64_t chosen;                  ///< rows that leave this rank for their experts
  std::int64_t rows;                    ///< of this rank's experts, the fullest one's where routing is uneven
  std::int64_t weighed;                 ///< rows that are summed to tokens on this rank
  std::int64_t expert_ffn, shared_ffn;  ///< columns of this rank
  std::int64_t up;                      ///< columns of fc1 per column of the activation

 private:
  std::vector<bool> experts_;
};

/// Bytes kept of a norm over `rows`: its statistics.
std::int64_t norm_statistics(const config::Model& m, std::int64_t rows);

/// Scores of all heads.
std::int64_t scores(const Sizes& z);

layout::ContextLayer across(const config::Run& run, std::int64_t layer);

/// Columns of keys, when heads are exchanged for positions: for each token of this rank as it was.
std::int64_t exchanged_keys(const Sizes& z, const layout::ContextLayer& context);

/// Channels of queries, keys and values that context ranks share their tokens in, for each token of this
/// rank.
std::int64_t shared_channels(const Sizes& z, const layout::ContextLayer& context);

/// Whether a batch says the positions of its tokens.
bool has_positions(const config::Run& run);

bool has_sinks(const config::Model& m);

/// Whether attention to whole sequences takes the path that keeps its scores.
bool keeps_scores(const config::Run& run);
/// Whether that of a layer does: blocks of keys never do.
bool keeps_scores(const config::Run& run, std::int64_t layer);

/// Bytes of the scores of a layer's block of keys, and of its keys in fp32, beside each other while it goes
/// forward in an evaluation, or backward; of the rank whose block is the largest. Nothing where kernels keep
/// scores.
std::int64_t block_scores(const config::Run& run, const Sizes& z, std::int64_t layer, bool backward);

/// Whether heads of values that are not as wide as those of queries are filled up: the kernel of the CPU
/// does.
bool fills_heads(const config::Run& run, const Sizes& z);

}  // namespace colonnade::cost
