// Layout of a rank's parameters in flat buffers and their division into buckets. Buffers (data_parallel/) are
// built from it, and the memory plan counts it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "colonnade/config/parallel.h"
#include "colonnade/layout/param.h"

namespace colonnade::layout {

/// Gradient reduction in addition to the one over data-parallel replicas.
enum class ExtraReduction : std::uint8_t {
  kNone,
  kTensor,      ///< over all tensor ranks: the spec has a partial gradient
  kSharedRows,  ///< over the tensor ranks that replicate the same rows (key/value heads, tp > groups)
  kStages,      ///< over the pipeline stages that hold the parameter
};

/// Extra reduction of a parameter with `tp` tensor-parallel ranks.
ExtraReduction extra_reduction(const ParamSpec& spec, const Shard& shard, int tp);

/// Whether a split backward pass may defer its weight gradient: true for GEMM weights [out, in] and stacks of
/// them [n, out, in]. Embeddings count too, although gradients of lookups are never deferred.
bool can_defer_wgrad(const ParamSpec& spec);

/// Number of data-parallel replicas per parameter group.
struct ReplicaCounts {
  PerGroup<int> counts{1, 1};
  [[nodiscard]] int& of(ParamGroup param_group) { return counts.of(param_group); }
  [[nodiscard]] int of(ParamGroup param_group) const { return counts.of(param_group); }
};

/// Two levels of replicas: state is sharded over `inner` adjacent replicas and replicated over `outer`
/// distributed-optimizer instances (--num-distributed-optimizer-instances). With outer_sharded
/// (--outer-dp-sharding-strategy optim) optimizer state is sharded over the instances too.
struct ReplicaLevels {
  ReplicaCounts inner, outer;
  bool outer_sharded = false;
  /// Number of equal shards of a bucket.
  [[nodiscard]] ReplicaCounts shard_counts() const {
    ReplicaCounts counts = inner;
    for (const ParamGroup group : kParamGroups) counts.of(group) *= outer_sharded ? outer.of(group) : 1;
    return counts;
  }
};
ReplicaLevels replica_levels(const config::Parallel& parallel, const Mesh& mesh);

/// State sharded over data-parallel replicas (strategies of --use-megatron-fsdp, ZeRO 0 to 3).
enum class Sharding : std::uint8_t { kNone, kOptimizer, kGradients, kParameters };

/// Alignment of the bucket length; the wide one with --ddp-pad-buckets-for-high-nccl-busbw.
inline constexpr std::int64_t kBucketAlignment = 128, kWideBucketAlignment = 65'536;

struct FlatParam {
  std::int64_t numel = 0;  ///< local elements
  ExtraReduction reduction = ExtraReduction::kNone;
  ParamGroup param_group = ParamGroup::kDense;
  int unit = 0;           ///< FSDP unit; a bucket holds parameters of one unit; equal without FSDP units
  bool deferred = false;  ///< weight gradient may be deferred; a bucket holds parameters of one kind
  HeldBy held_by = HeldBy::kOneStage;
};
/// Position of a FlatParam in the buffers.
struct PlacedParam {
  std::size_t chunk = 0;
  std::size_t index = 0;   ///< position in the chunk's list
  std::int64_t begin = 0;  ///< first element in the buffers
  std::int64_t numel = 0;
};
struct FlatBucket {
  int chunk = 0;
  // The next four are equal for all parameters of the bucket.
  ExtraReduction reduction = ExtraReduction::kNone;
  ParamGroup param_group = ParamGroup::kDense;
  int unit = 0;
  bool deferred = false;
  HeldBy held_by = HeldBy::kOneStage;  ///< a parameter of several stages has its own bucket
  std::int64_t begin = 0, end = 0;     ///< elements with padding
  std::size_t first = 0, last = 0;     ///< entries [first, last)
};
struct FlatLayout {
  std::vector<PlacedParam> entries;
  std::vector<FlatBucket> buckets;
  std::int64_t size = 0;  ///< elements of each buffer
};

/// Flat layout of `chunks[c]`, the parameters of model chunk c in forward order. Parameters are laid out in
/// the order in which backward completes their gradients, grouped by parameter group, extra reduction and
/// deferral, each at a multiple of 64 elements. A bucket closes at `bucket_elements` or at the end of its
/// unit; its length is a multiple of lcm(shards of its group in `parts`, `alignment`).
FlatLayout lay_out(const std::vector<std::vector<FlatParam>>& chunks, std::int64_t bucket_elements,
                   const ReplicaCounts& parts, std::int64_t alignment = kBucketAlignment);

/// Weight of each element of a parameter in a sum over shards.
using EntryWeight = std::function<std::int64_t(const PlacedParam& entry)>;

/// Maximum over ranks of the owned parameter elements (without padding), with each bucket in `shards` equal
/// shards per parameter group.
std::int64_t largest_shard(const FlatLayout& layout, const ReplicaCounts& shards);
/// The same for a weighted sum of the elements.
std::int64_t largest_shard(const FlatLayout& layout, const ReplicaCounts& shards, const EntryWeight& weight);

/// Parameter elements of a bucket in shard `part` of `parts` equal shards.
std::int64_t elements_in_shard(const FlatLayout& layout, const FlatBucket& bucket, int part, int parts);

/// Elements with padding that a rank keeps resident with each bucket in `shards` equal shards per group; with
/// one shard the size of the layout.
std::int64_t resident_elements(const FlatLayout& layout, const ReplicaCounts& shards);

/// Sharding of the settings; at least gradients with --deterministic-mode.
Sharding sharding_of(const config::Parallel& parallel);

/// Pending partial sums after `microbatches` of a pairwise tree sum (2i with 2i + 1, then pairs of pairs):
/// the set bits of the number.
int pending_partial_sums(int microbatches);

/// Bucket size: --ddp-bucket-size, or a rank's `parameters` / --ddp-num-buckets, or Megatron's default
/// max(40e6, 1e6 * replicas).
std::int64_t bucket_elements(const config::Parallel& parallel, int replicas, std::int64_t parameters);

std::int64_t bucket_alignment(const config::Parallel& parallel);

}  // namespace colonnade::layout
