// See buckets.h.
#include "colonnade/layout/buckets.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "colonnade/base/error.h"

namespace colonnade::layout {
namespace {

constexpr std::int64_t kStartAlignment = 64;

std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

/// Builds a flat layout bucket by bucket.
class LayoutBuilder {
 public:
  LayoutBuilder(std::int64_t bucket_elements, const ReplicaCounts& parts, std::int64_t alignment)
      : bucket_elements_(bucket_elements), parts_(parts), alignment_(alignment) {}

  void add(int chunk, std::size_t index, const FlatParam& param) {
    if (open_ && layout_.buckets.back().unit != param.unit) close();
    if (!open_)
      layout_.buckets.push_back({.chunk = chunk,
                                 .reduction = param.reduction,
                                 .param_group = param.param_group,
                                 .unit = param.unit,
                                 .deferred = param.deferred,
                                 .held_by = param.held_by,
                                 .begin = layout_.size,
                                 .first = layout_.entries.size()});
    open_ = true;
    layout_.size = round_up(layout_.size, kStartAlignment);
    layout_.entries.push_back({static_cast<std::size_t>(chunk), index, layout_.size, param.numel});
    layout_.size += param.numel;
    if (param.reduction == ExtraReduction::kStages ||
        layout_.size - layout_.buckets.back().begin >= bucket_elements_)
      close();
  }

  void close() {
    if (!open_) return;
    FlatBucket& bucket = layout_.buckets.back();
    bucket.last = layout_.entries.size();
    const std::int64_t alignment = std::lcm(std::int64_t{parts_.of(bucket.param_group)}, alignment_);
    bucket.end = layout_.size = bucket.begin + round_up(layout_.size - bucket.begin, alignment);
    open_ = false;
  }

  FlatLayout take() { return std::move(layout_); }

 private:
  std::int64_t bucket_elements_;
  ReplicaCounts parts_;
  std::int64_t alignment_;
  FlatLayout layout_;
  bool open_ = false;
};

/// Elements of `entry` in shard `part` of `parts` equal shards of its bucket.
std::int64_t owned_elements(const PlacedParam& entry, const FlatBucket& bucket, int part, int parts) {
  const std::int64_t length = (bucket.end - bucket.begin) / parts, begin = bucket.begin + length * part;
  const std::int64_t from = std::max(entry.begin, begin);
  const std::int64_t to = std::min(entry.begin + entry.numel, begin + length);
  return std::max<std::int64_t>(0, to - from);
}

/// Sum of weight(entry) over the elements of one parameter group that rank `rank` of `shards` owns.
template <typename Weight>
std::int64_t owned_by(const FlatLayout& layout, ParamGroup param_group, int rank, int shards,
                      const Weight& weight) {
  std::int64_t owned = 0;
  for (const FlatBucket& bucket : layout.buckets) {
    if (bucket.param_group != param_group) continue;
    for (std::size_t i = bucket.first; i < bucket.last; ++i)
      owned += owned_elements(layout.entries[i], bucket, rank, shards) * weight(layout.entries[i]);
  }
  return owned;
}

/// See largest_shard.
template <typename Weight>
std::int64_t largest_weighted_shard(const FlatLayout& layout, const ReplicaCounts& shards,
                                    const Weight& weight) {
  // One rank may own the largest shard of every group.
  std::int64_t most = 0;
  for (const ParamGroup param_group : kParamGroups) {
    std::int64_t most_of_group = 0;
    for (int rank = 0; rank < shards.of(param_group); ++rank)
      most_of_group =
          std::max(most_of_group, owned_by(layout, param_group, rank, shards.of(param_group), weight));
    most += most_of_group;
  }
  return most;
}

}  // namespace

ReplicaLevels replica_levels(const config::Parallel& parallel, const Mesh& mesh) {
  const int instances = parallel.num_distributed_optimizer_instances;
  ReplicaLevels levels{.outer_sharded = parallel.outer_dp_sharding_strategy == "optim"};
  for (const ParamGroup param_group : kParamGroups) {
    levels.inner.of(param_group) = std::max(1, mesh.size(data_axes(param_group)) / instances);
    levels.outer.of(param_group) = instances;
  }
  return levels;
}

ExtraReduction extra_reduction(const ParamSpec& spec, const Shard& shard, int tp) {
  if (spec.param_group == ParamGroup::kExpert) {
    COL_CHECK(
        spec.partial.empty() && !shard.shared,
        "{} must be an expert parameter without extra gradient reduction; got a partial or shared gradient; "
        "fix the spec",
        spec.name);
    return ExtraReduction::kNone;
  }
  if (spec.held_by != HeldBy::kOneStage) {
    COL_CHECK(
        spec.partial.empty() && !shard.shared,
        "{} must have no other extra gradient reduction if several stages hold it; got a partial or shared "
        "gradient; fix the spec",
        spec.name);
    return ExtraReduction::kStages;
  }
  if (tp == 1) return ExtraReduction::kNone;
  if (spec.sharded_dim(Axis::kTp) != nullptr)
    return shard.shared ? ExtraReduction::kSharedRows : ExtraReduction::kNone;
  return spec.partial.has(Axis::kTp) ? ExtraReduction::kTensor : ExtraReduction::kNone;
}

bool can_defer_wgrad(const ParamSpec& spec) { return is_matrix(spec); }

FlatLayout lay_out(const std::vector<std::vector<FlatParam>>& chunks, std::int64_t bucket_elements,
                   const ReplicaCounts& parts, std::int64_t alignment) {
  LayoutBuilder builder(bucket_elements, parts, alignment);
  const auto add = [&](std::size_t chunk, ParamGroup param_group, ExtraReduction reduction) {
    for (const bool deferred : {false, true}) {
      for (std::size_t i = chunks[chunk].size(); i-- > 0;) {
        const FlatParam& param = chunks[chunk][i];
        if (param.param_group == param_group && param.reduction == reduction && param.deferred == deferred)
          builder.add(static_cast<int>(chunk), i, param);
      }
      builder.close();
    }
  };
  for (std::size_t c = 0; c < chunks.size(); ++c)
    for (const ParamGroup param_group : kParamGroups)
      for (const ExtraReduction reduction : {ExtraReduction::kNone, ExtraReduction::kTensor,
                                             ExtraReduction::kSharedRows, ExtraReduction::kStages})
        add(c, param_group, reduction);
  return builder.take();
}

std::int64_t elements_in_shard(const FlatLayout& layout, const FlatBucket& bucket, int part, int parts) {
  std::int64_t elements = 0;
  for (std::size_t i = bucket.first; i < bucket.last; ++i)
    elements += owned_elements(layout.entries[i], bucket, part, parts);
  return elements;
}

std::int64_t largest_shard(const FlatLayout& layout, const ReplicaCounts& shards) {
  return largest_weighted_shard(layout, shards, [](const PlacedParam&) { return std::int64_t{1}; });
}

std::int64_t largest_shard(const FlatLayout& layout, const ReplicaCounts& shards, const EntryWeight& weight) {
  return largest_weighted_shard(layout, shards, weight);
}

std::int64_t resident_elements(const FlatLayout& layout, const ReplicaCounts& shards) {
  std::int64_t held = 0;
  for (const FlatBucket& bucket : layout.buckets)
    held += (bucket.end - bucket.begin) / shards.of(bucket.param_group);
  return held;
}

Sharding sharding_of(const config::Parallel& p) {
  const std::string strategy = p.use_megatron_fsdp           ? p.data_parallel_sharding_strategy
                               : p.use_distributed_optimizer ? "optim"
                                                             : "no_shard";
  if (strategy == "optim_grads_params") return Sharding::kParameters;
  if (strategy == "optim_grads" || p.deterministic_mode) return Sharding::kGradients;
  return strategy == "optim" ? Sharding::kOptimizer : Sharding::kNone;
}

int pending_partial_sums(int microbatches) { return std::popcount(static_cast<unsigned>(microbatches)); }

std::int64_t bucket_elements(const config::Parallel& parallel, int replicas, std::int64_t parameters) {
  if (parallel.ddp_bucket_size > 0) return parallel.ddp_bucket_size;
  if (parallel.ddp_num_buckets > 0) return std::max<std::int64_t>(1, parameters / parallel.ddp_num_buckets);
  return std::max<std::int64_t>(40'000'000, 1'000'000LL * replicas);
}

std::int64_t bucket_alignment(const config::Parallel& parallel) {
  return parallel.ddp_pad_buckets_for_high_nccl_busbw ? kWideBucketAlignment : kBucketAlignment;
}

}  // namespace colonnade::layout
