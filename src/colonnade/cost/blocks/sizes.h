// Sizes of one micro-batch of one sequence on one rank, shared by the costs of all blocks. Letters: n tokens,
// r tokens between tensor-parallel regions, e bytes per activation, e' per value of the residual stream (e,
// or 4 with --fp32-residual-connection), h hidden size.
#pragma once

#include <cstdint>

#include "colonnade/config/run.h"

namespace colonnade::cost {

/// Bytes of statistics, accumulators and scores, which are fp32 whatever the dtypes of the run's roles.
inline constexpr std::int64_t kFp32 = config::bytes(config::Dtype::kFloat32);
inline constexpr std::int64_t kInt64 = 8;

struct Sizes {
  /// `run` must outlive it. `seq_length`: tokens of the sequence.
  Sizes(const config::Run& run, std::int64_t seq_length);

  /// Bytes of [n, h].
  [[nodiscard]] std::int64_t full_hidden() const { return n * m.hidden_size * e; }
  /// Whether activations are fp32, so that fp32 computations use them without a converted copy.
  [[nodiscard]] bool in_fp32() const { return dtypes.activation == config::Dtype::kFloat32; }
  [[nodiscard]] bool on_cuda() const { return run.training.device == "cuda"; }
  /// Whether selective recomputation covers `module`.
  [[nodiscard]] bool recomputes(const char* module) const { return run.recompute.recomputes(module); }
  /// `bytes` if selective recomputation covers `module`, so that they are not saved; 0 otherwise.
  [[nodiscard]] std::int64_t recomputed(const char* module, std::int64_t bytes) const {
    return recomputes(module) ? bytes : 0;
  }

  const config::Run& run;
  const config::Model& m;
  config::Dtypes dtypes;
  std::int64_t tp;
  bool sequence_parallel;
  std::int64_t b;
  std::int64_t cp, seq_length;  ///< context-parallel ranks; tokens of the full sequence
  std::int64_t s, n, r, e;
  std::int64_t heads, groups, q, kv, v,
      out;  ///< local: channels of queries, keys, values and attention output
  std::int64_t
      cp_head_dim;  ///< head size in context-parallel exchanges, which use one width for keys and values
  std::int64_t fc1_per_ffn;  ///< fc1 columns per activation column: 2 if gated, else 1
  std::int64_t vocabulary;   ///< local rows, padding included
  std::int64_t hidden;       ///< bytes of [r, h]
  std::int64_t stream;       ///< bytes of [r, h] in the dtype of the residual stream
  std::int64_t converted;    ///< `hidden` if the residual stream has another dtype; 0 otherwise
  std::int64_t gathered;     ///< bytes of [n, h] with sequence parallelism; 0 without
};

/// Bytes of the saved statistics of a norm over `rows`.
std::int64_t norm_statistics(const config::Model& m, std::int64_t rows);
/// Bytes that a norm of the residual stream saves: its input, its output unless that is recomputed, and
/// statistics.
std::int64_t norm_saved(const Sizes& z);

/// Gradient of a weight with `elements`, before its accumulation; 0 if that needs no conversion.
std::int64_t weight_gradient_bytes(const Sizes& z, std::int64_t elements);

/// Whether the batch carries position ids.
bool has_position_ids(const config::Run& run);

}  // namespace colonnade::cost
