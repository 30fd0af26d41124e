// What a parameter is, said once as data: global shape, how it is cut, where its gradient is
// partial, how it starts. Initial values, gradient reductions, norms, optimizer shards, checkpoints,
// converters and the memory plan are derived from it (docs/architecture.md, "Placement").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/plan/mesh.h"

namespace colonnade::plan {

/// A consecutive part of the cut dimension: `q`, `k`, `v` of a fused matrix, `gate` and `up`, or the
/// whole. It is cut in units (a head, one row) that never break:
///   units divisible by the axis   each rank holds units / size of them;
///   axis divisible by the units   each unit is held by size / units neighbouring ranks;
///   pad_to > 0                    units are filled up to the next multiple of pad_to that the axis
///                                 divides; filling exists in memory only (vocabulary).
/// Anything else is refused by plan::check.
struct Piece {
  std::string role;       ///< "q", "gate", "" when there is one piece
  std::int64_t size = 0;  ///< global length along the cut dimension
  std::int64_t unit = 1;  ///< length that is never cut
  std::int64_t pad_to = 0;
};

enum class InitKind : std::uint8_t { kNormal, kZero, kOne };
struct Init {
  InitKind kind = InitKind::kNormal;
  double std = 0.02;
};

struct ParamSpec {
  std::string name;                 ///< global name, e.g. "decoder.layers.3.mlp.linear_fc1.weight"
  std::vector<std::int64_t> shape;  ///< global shape without filling
  int split_dim = -1;               ///< cut dimension; -1: every rank holds all of it
  Axis split_axis = Axis::kTp;      ///< axis over which it is cut
  std::vector<Piece> pieces;        ///< sizes add up to shape[split_dim]; empty when split_dim is -1
  AxisSet partial;                  ///< axes besides the data axes over which the gradient must be summed
  AxisSet data_axes{Axis::kDp, Axis::kCp};  ///< axes of replicas that see other samples
  Init init;
  bool weight_decay = true;  ///< false for biases and norms

  [[nodiscard]] std::int64_t numel() const;
};

/// A run along the cut dimension that a rank holds: [local, local+length) is [global, global+length).
struct Run {
  std::int64_t global = 0;
  std::int64_t local = 0;
  std::int64_t length = 0;
  int holders = 1;    ///< ranks of the axis that hold this run
  bool owner = true;  ///< true on the first of them
};

/// One rank's part of a parameter.
struct Shard {
  std::vector<std::int64_t> shape;  ///< local shape, filling included
  std::vector<Run> runs;            ///< in local order; the rest of the cut dimension is filling
  bool replicated_runs = false;     ///< some run has more than one holder
  [[nodiscard]] std::int64_t numel() const;
};

/// The part of the rank that stands at `coord` of `size` on spec.split_axis. A parameter that is not
/// cut has one run over dimension 0 (length 1 and shape {} for scalars), held by all and owned by
/// coordinate 0. Throws ConfigError where a piece cannot be cut.
Shard shard(const ParamSpec& spec, int coord, int size);

}  // namespace colonnade::plan
