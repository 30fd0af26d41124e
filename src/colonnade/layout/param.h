// Parameter specs: global shape, sharding, axes of partial gradients, initialization. Initial values,
// gradient reductions, gradient norms, optimizer shards, checkpoints, converters and the memory plan are
// derived from them (docs/architecture.md, "Parameters are data").
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "colonnade/layout/mesh.h"

namespace colonnade::layout {

/// Consecutive segment of a sharded dimension: `q`, `k` or `v` of a fused matrix, `gate` or `up`, or the
/// whole dimension. It is sharded in indivisible units (a head, a row):
///   units divisible by the axis size   each rank holds units / size of them;
///   axis size divisible by the units   each unit is replicated on size / units adjacent ranks;
///   pad_to > 0                         units are padded to the next multiple of pad_to that the axis size
///                                      divides; padding exists in memory only (vocabulary).
/// rules::check rejects anything else.
struct DimSegment {
  std::string role;       ///< "q", "gate"; empty for a single segment
  std::int64_t size = 0;  ///< global length along the sharded dimension
  std::int64_t unit = 1;  ///< indivisible length
  std::int64_t pad_to = 0;
};

/// Dimension sharded over one mesh axis.
struct ShardedDim {
  int dim = 0;
  Axis axis = Axis::kTp;
  std::vector<DimSegment> segments;  ///< sizes add up to shape[dim]
};

enum class InitKind : std::uint8_t { kNormal, kUniform, kZero, kOne };
struct Init {
  InitKind kind = InitKind::kNormal;
  double std = 0.02;  ///< of kNormal; of kUniform the bound: values are in [-std, std)
  static constexpr Init zeros() { return {.kind = InitKind::kZero, .std = 0}; }
  static constexpr Init ones() { return {.kind = InitKind::kOne, .std = 0}; }
};

/// Parameter group: mesh axes of the shards and of the data-parallel replicas.
enum class ParamGroup : std::uint8_t {
  kDense,   ///< sharded or replicated over tp; data-parallel replicas over dp and cp
  kExpert,  ///< sharded or replicated over ep and etp; data-parallel replicas over edp
};
inline constexpr ParamGroup kParamGroups[] = {ParamGroup::kDense, ParamGroup::kExpert};
AxisSet model_axes(ParamGroup param_group);
AxisSet data_axes(ParamGroup param_group);

/// One value per parameter group.
template <typename T>
struct PerGroup {
  T values[std::size(kParamGroups)] = {};  ///< in the order of kParamGroups
  [[nodiscard]] constexpr T& of(ParamGroup param_group) {
    return values[static_cast<std::size_t>(param_group)];
  }
  [[nodiscard]] constexpr const T& of(ParamGroup param_group) const {
    return values[static_cast<std::size_t>(param_group)];
  }
};

/// Pipeline stages that hold a parameter. Several stages hold the same values, and their gradients are
/// summed.
enum class HeldBy : std::uint8_t {
  kOneStage,
  kTiedEmbeddings,  ///< first and last stage: tied embeddings
  kEncoder,         ///< stages with encoder layers
  kDecoder,         ///< stages with decoder layers
};
inline constexpr std::size_t kNumHeldBy = 4;
/// Stages that hold the parameters that all layers of a stack (config::stacks) share.
constexpr HeldBy held_by_stack(bool is_last) { return is_last ? HeldBy::kDecoder : HeldBy::kEncoder; }
/// Parameters that several stages may hold, with the names of their process groups.
inline constexpr std::pair<HeldBy, const char*> kSharedParameters[] = {
    {HeldBy::kTiedEmbeddings, "embedding"}, {HeldBy::kEncoder, "encoder"}, {HeldBy::kDecoder, "decoder"}};

struct ParamSpec {
  std::string name;                      ///< global name, e.g. "decoder.layers.3.mlp.linear_fc1.weight"
  std::vector<std::int64_t> shape;       ///< global shape without padding
  std::vector<ShardedDim> sharded_dims;  ///< different dimensions over different model axes of the group; the
                                         ///< parameter is replicated over the other model axes
  AxisSet partial;                       ///< axes besides the data axes over which the gradient is reduced
  ParamGroup param_group = ParamGroup::kDense;
  Init init;
  HeldBy held_by = HeldBy::kOneStage;
  bool weight_decay = true;  ///< false for biases and norms
  bool trained = true;       ///< false: fp32 state without gradient, the same on all ranks

  [[nodiscard]] std::int64_t numel() const;
  [[nodiscard]] const ShardedDim* sharded_dim(Axis axis) const;  ///< null: not sharded over the axis
};

/// Whether a parameter is a matrix [out, in], or a stack of them [experts, out, in].
bool is_matrix(const ParamSpec& spec);

/// Box of the global tensor that a rank holds: elements global[d] <= i[d] < global[d] + length[d] start at
/// local[d] in the rank's tensor. A scalar has no dimensions.
struct ShardBox {
  std::vector<std::int64_t> global, local, length;
  int holders = 1;    ///< number of ranks of the model axes that hold these elements
  bool owner = true;  ///< true on exactly one of these ranks
};

/// Shard of a parameter on one rank.
struct Shard {
  std::vector<std::int64_t> shape;  ///< local shape with padding
  std::vector<ShardBox> boxes;      ///< in local order; the rest is padding
  bool shared = false;              ///< some unit is replicated on several ranks of a sharding axis
  [[nodiscard]] std::int64_t numel() const;
};

/// Shard of the rank at `position`. Throws ConfigError if a segment cannot be sharded.
Shard shard(const ParamSpec& spec, const Position& position);

/// Elements that are contiguous in both the local and the global tensor, as flat row-major offsets.
struct ElementSpan {
  std::int64_t local = 0, global = 0, length = 0;
};
/// Calls `use` for each contiguous span of `part`, in local order.
void for_each_span(const ParamSpec& spec, const Shard& shard, const ShardBox& part,
                   const std::function<void(const ElementSpan&)>& use);

/// Flat local elements [begin, end).
struct LocalSpan {
  std::int64_t begin = 0, end = 0;
};
/// Elements that this rank owns, ascending and maximally merged.
std::vector<LocalSpan> owned(const ParamSpec& spec, const Shard& shard);

}  // namespace colonnade::layout
