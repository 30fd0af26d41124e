// Sizes shared by all activation formulas. Letters: n tokens, r tokens between tensor-parallel regions, e
// bytes per activation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/layout/context_parallel.h"
#include "colonnade/layout/layer_kind.h"

namespace colonnade::cost {

/// Bytes of statistics, accumulators and router scores, which are fp32 whatever the dtypes of the run's
/// roles.
inline constexpr std::int64_t kFp32 = config::bytes(config::Dtype::kFloat32);
inline constexpr std::int64_t kInt64 = 8;

/// Sizes of one micro-batch on one rank.
struct Sizes {
  explicit Sizes(const config::Run& run);

  /// Bytes of [n, h].
  [[nodiscard]] std::int64_t full_hidden() const { return n * m.hidden_size * e; }
  /// Whether a layer is an MoE layer; MTP layers (numbers past the last) follow the last one.
  [[nodiscard]] bool has_experts(std::int64_t layer) const {
    return layer_kinds_[std::min(static_cast<std::size_t>(layer), layer_kinds_.size() - 1)].is_moe();
  }

  /// Whether activations are fp32, so that fp32 computations use them without a converted copy.
  [[nodiscard]] bool in_fp32() const { return dtypes.activation == config::Dtype::kFloat32; }

  const config::Model& m;
  config::Dtypes dtypes;
  std::int64_t tp;
  bool sequence_parallel;
  std::int64_t b;
  std::int64_t cp, seq_length;  ///< context-parallel ranks; tokens of the full sequence
  bool mtp_in_batch;  ///< MTP labels come with the batch: with context parallelism or a per-token loss
  std::int64_t s, n, r, e;
  std::int64_t heads, groups, q, kv, v,
      out;  ///< local: channels of queries, keys, values and attention output
  std::int64_t
      cp_head_dim;  ///< head size in context-parallel exchanges, which use one width for keys and values
  std::int64_t ffn, fc1, vocabulary;  ///< local columns
  std::int64_t hidden;                ///< bytes of [r, h]
  std::int64_t gathered;              ///< bytes of [n, h] with sequence parallelism; 0 without
  std::int64_t ep, etp, topk;
  std::int64_t sent_rows;               ///< rows that this rank sends to experts
  std::int64_t expert_rows;             ///< rows of this rank's experts, on the most loaded rank
  std::int64_t combined_rows;           ///< rows combined into tokens on this rank
  std::int64_t expert_ffn, shared_ffn;  ///< local columns
  std::int64_t fc1_per_ffn;             ///< fc1 columns per activation column: 2 if gated, else 1

 private:
  std::vector<layout::LayerKind> layer_kinds_;
};

/// Bytes of the saved statistics of a norm over `rows`.
std::int64_t norm_statistics(const config::Model& m, std::int64_t rows);

/// Attention scores of all local heads.
std::int64_t score_bytes(const Sizes& z);

/// Context-parallel groups of a layer; trivial ones without context parallelism.
layout::LayerContextParallel context_of_layer(const config::Run& run, std::int64_t layer);

/// Key channels per local token in the all-to-all from sequence to head sharding.
std::int64_t exchanged_kv_channels(const Sizes& z, const layout::LayerContextParallel& context);

/// Query, key and value channels per local token in context-parallel attention.
std::int64_t exchanged_qkv_channels(const Sizes& z, const layout::LayerContextParallel& context);

/// Whether the batch carries position ids.
bool has_position_ids(const config::Run& run);

/// Whether softmax has attention sinks.
bool has_sinks(const config::Model& m);

/// Whether attention over full sequences takes the unfused path, which saves its scores.
bool saves_scores(const config::Run& run);
/// The same for one layer; ring attention never saves scores.
bool saves_scores(const config::Run& run, std::int64_t layer);

/// Bytes of the scores of one KV block of ring attention and of its fp32 keys, alive together in an
/// evaluation's forward pass or in a backward pass; on the rank with the largest block. 0 where a fused
/// kernel runs.
std::int64_t block_scores(const config::Run& run, const Sizes& z, std::int64_t layer, bool backward);

/// Whether value heads narrower or wider than query heads are padded: the CPU kernel needs equal widths.
bool pads_value_heads(const config::Run& run, const Sizes& z);

}  // namespace colonnade::cost
