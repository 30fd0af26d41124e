// How the parameters of a rank lie in its flat buffers, and where these are cut into buckets. The
// buffers (data_parallel/) are built from this, the memory plan counts it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "colonnade/config/parallel.h"
#include "colonnade/layout/param.h"

namespace colonnade::layout {

/// What completes a rank's gradient besides the sum over the replicas.
enum class FurtherSum : std::uint8_t {
  kNone,
  kTensor,      ///< the sum over the tensor ranks: the spec calls the gradient partial
  kSharedRows,  ///< the sum over the tensor ranks that hold the same rows (key-value heads, tp > groups)
  kStages,      ///< the sum over the stages that hold it
};

/// Of a parameter on one of `tp` tensor ranks.
FurtherSum further_sum(const ParamSpec& spec, const Shard& shard, int tp);

/// Whether a split backward pass may leave its gradient for later: of matrices, which are multiplied with,
/// [out, in] or [experts, out, in]. Tables are matrices too, though what looks up their rows does not wait.
bool may_wait(const ParamSpec& spec);

/// How many ranks hold the same part of a parameter.
struct Replicas {
  int dense = 1, expert = 1;
  [[nodiscard]] int of(Family family) const { return family == Family::kDense ? dense : expert; }
};

/// The replicas on two levels: `inner` of them next to each other share what the sharding cuts, and `outer`
/// (--num-distributed-optimizer-instances) such groups hold the same. With outer_cut
/// (--outer-dp-sharding-strategy optim) the groups share the update of what they hold.
struct Levels {
  Replicas inner, outer;
  bool outer_cut = false;
  /// Equal parts that a bucket is cut into.
  [[nodiscard]] Replicas parts() const {
    return {inner.dense * (outer_cut ? outer.dense : 1), inner.expert * (outer_cut ? outer.expert : 1)};
  }
};
Levels levels_of(const config::Parallel& parallel, const Mesh& mesh);

/// What replicas hold a part each of, instead of all (--use-megatron-fsdp's strategies, ZeRO 0 to 3).
enum class Sharding : std::uint8_t { kNone, kOptimizer, kGradients, kParameters };

/// What the length of a bucket is a multiple of; with --ddp-pad-buckets-for-high-nccl-busbw.
inline constexpr std::int64_t kBucketAlignment = 128, kWideBucketAlignment = 65'536;

struct FlatParam {
  std::int64_t numel = 0;  ///< local elements
  FurtherSum further = FurtherSum::kNone;
  Family family = Family::kDense;
  int unit =
      0;  ///< those of different units lie in different buckets; the same for all: buckets know no units
  bool waits = false;  ///< its gradient may come later than those of others; buckets are of one kind
  HeldBy held_by = HeldBy::kOneStage;
};
struct FlatEntry {
  std::size_t chunk = 0;
  std::size_t index = 0;   ///< in the list of the chunk
  std::int64_t begin = 0;  ///< first element in the buffers
  std::int64_t numel = 0;
};
struct FlatBucket {
  int chunk = 0;
  FurtherSum further = FurtherSum::kNone;  ///< of all its parameters
  Family family = Family::kDense;          ///< of all its parameters
  int unit = 0;                            ///< of all its parameters
  bool waits = false;                      ///< of all its parameters
  HeldBy held_by = HeldBy::kOneStage;      ///< of its parameter, which is alone where several stages hold it
  std::int64_t begin = 0, end = 0;         ///< elements, filling included
  std::size_t first = 0, last = 0;         ///< entries [first, last)
};
struct FlatLayout {
  std::vector<FlatEntry> entries;
  std::vector<FlatBucket> buckets;
  std::int64_t size = 0;  ///< elements of each buffer
};

/// `chunks[c]`: the parameters of chunk c in forward order. They lie in the order in which the backward
/// pass finishes them, those of one family, further sum and kind of waiting together, each start on a
/// multiple of 64 elements. A bucket closes when it has at least `bucket_elements`, or its unit ends; its
/// length is a multiple of lcm(parts that those of its family are cut into, `alignment`).
FlatLayout lay_out(const std::vector<std::vector<FlatParam>>& chunks, std::int64_t bucket_elements,
                   const Replicas& parts, std::int64_t alignment = kBucketAlignment);

/// Elements of parameters that a rank owns when each bucket is cut into as many equal parts as its family has
/// `shards`: at most, over the ranks. Filling belongs to nobody.
std::int64_t largest_shard(const FlatLayout& layout, const Replicas& shards);

/// Elements of a bucket's parameters that lie in part `part` of `parts` equal ones.
std::int64_t elements_in_part(const FlatLayout& layout, const FlatBucket& bucket, int part, int parts);

/// Elements that a rank holds between uses, filling included, when the buckets of families with more than one
/// shard are cut; without cuts the size of the layout.
std::int64_t held_elements(const FlatLayout& layout, const Replicas& shards);

/// What the settings shard. With --deterministic-mode gradients at least.
Sharding sharding_of(const config::Parallel& parallel);

/// Bytes of a gradient's element on its way over the data ranks.
std::int64_t travelling_element(const config::Parallel& parallel);

/// Sums of micro-batches that wait for their like behind so many of them, when micro-batch 2i meets 2i + 1,
/// and their sum that of the next two: the ones in the binary number.
int waiting_sums(int microbatches);

/// --ddp-bucket-size, or by --ddp-num-buckets of a rank's `parameters`, or Megatron's
/// max(40e6, 1e6 * replicas).
std::int64_t bucket_elements(const config::Parallel& parallel, int replicas, std::int64_t parameters);

std::int64_t bucket_alignment(const config::Parallel& parallel);

}  // namespace colonnade::layout
