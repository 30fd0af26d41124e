// What a parameter is, said once as data: global shape, how it is cut, where its gradient is
// partial, how it starts. Initial values, gradient reductions, norms, optimizer shards, checkpoints,
// converters and the memory plan are derived from it (docs/architecture.md, "Placement").
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "colonnade/layout/mesh.h"

namespace colonnade::layout {

/// A consecutive part of a cut dimension: `q`, `k`, `v` of a fused matrix, `gate` and `up`, or the
/// whole. It is cut in units (a head, one row) that never break:
///   units divisible by the axis   each rank holds units / size of them;
///   axis divisible by the units   each unit is held by size / units neighbouring ranks;
///   pad_to > 0                    units are filled up to the next multiple of pad_to that the axis
///                                 divides; filling exists in memory only (vocabulary).
/// Anything else is refused by rules::check.
struct Piece {
  std::string role;       ///< "q", "gate", "" when there is one piece
  std::int64_t size = 0;  ///< global length along the cut dimension
  std::int64_t unit = 1;  ///< length that is never cut
  std::int64_t pad_to = 0;
};

/// One dimension cut over one axis.
struct Cut {
  int dim = 0;
  Axis axis = Axis::kTp;
  std::vector<Piece> pieces;  ///< sizes add up to shape[dim]
};

enum class InitKind : std::uint8_t { kNormal, kZero, kOne };
struct Init {
  InitKind kind = InitKind::kNormal;
  double std = 0.02;
  static constexpr Init zeros() { return {.kind = InitKind::kZero, .std = 0}; }
  static constexpr Init ones() { return {.kind = InitKind::kOne, .std = 0}; }
};

/// The ranks that hold parts of a parameter, and those that hold the same part.
enum class Family : std::uint8_t {
  kDense,   ///< cut or repeated over tp; replicas over dp and cp
  kExpert,  ///< cut or repeated over ep and etp; replicas over edp
};
AxisSet model_axes(Family family);
AxisSet data_axes(Family family);

/// The pipeline stages that hold a parameter. Where there are several, all have the same values, and the sum
/// of their gradients is the gradient.
enum class HeldBy : std::uint8_t {
  kOneStage,
  kEnds,     ///< first and last: embeddings that both read
  kEncoder,  ///< those with layers of the encoder
  kDecoder,  ///< those with layers of the decoder
};

struct ParamSpec {
  std::string name;                 ///< global name, e.g. "decoder.layers.3.mlp.linear_fc1.weight"
  std::vector<std::int64_t> shape;  ///< global shape without filling
  std::vector<Cut> cuts;  ///< of different dimensions over different axes of the family; the other axes
                          ///< of its model hold the same
  AxisSet partial;        ///< axes besides the data axes over which the gradient must be summed
  Family family = Family::kDense;
  Init init;
  HeldBy held_by = HeldBy::kOneStage;
  bool weight_decay = true;  ///< false for biases and norms
  bool trained = true;       ///< false: state that no gradient reaches, in fp32, the same on all ranks

  [[nodiscard]] std::int64_t numel() const;
  [[nodiscard]] const Cut* cut(Axis axis) const;  ///< null: not cut over it
};

/// A box of the global tensor that a rank holds: the elements global[d] <= i[d] < global[d] + length[d] lie
/// at local[d] of the rank's tensor. No dimensions: a scalar.
struct Part {
  std::vector<std::int64_t> global, local, length;
  int holders = 1;    ///< ranks of the model axes that hold these elements
  bool owner = true;  ///< true on one of them
};

/// What one rank holds of a parameter.
struct Shard {
  std::vector<std::int64_t> shape;  ///< local shape, filling included
  std::vector<Part> parts;          ///< in local order; the rest is filling
  bool shared = false;              ///< some unit is held by several ranks of an axis that cuts it
  [[nodiscard]] std::int64_t numel() const;
};

/// What the rank at `position` holds. Throws ConfigError where a piece cannot be cut.
Shard shard(const ParamSpec& spec, const Position& position);

/// Elements that lie together both in the rank's tensor and in the global one, as flat row-major numbers.
struct Stretch {
  std::int64_t local = 0, global = 0, length = 0;
};
/// Those of `part`, in local order.
void for_each_stretch(const ParamSpec& spec, const Shard& shard, const Part& part,
                      const std::function<void(const Stretch&)>& use);

/// The flat local elements [begin, end) that this rank owns, ascending and as long as can be.
struct Range {
  std::int64_t begin = 0, end = 0;
};
std::vector<Range> owned(const ParamSpec& spec, const Shard& shard);

}  // namespace colonnade::layout
