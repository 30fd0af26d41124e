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

/// Fills a layout bucket by bucket.
class Filler {
 public:
  Filler(std::int64_t bucket_elements, const Replicas& parts, std::int64_t alignment)
      : bucket_elements_(bucket_elements), parts_(parts), alignment_(alignment) {}

  void place(int chunk, std::size_t index, const FlatParam& param) {
    if (open_ && layout_.buckets.back().unit != param.unit) close();
    if (!open_)
      layout_.buckets.push_back({.chunk = chunk,
                                 .further = param.further,
                                 .family = param.family,
                                 .unit = param.unit,
                                 .waits = param.waits,
                                 .held_by = param.held_by,
                                 .begin = layout_.size,
                                 .first = layout_.entries.size()});
    open_ = true;
    layout_.size = round_up(layout_.size, kStartAlignment);
    layout_.entries.push_back({static_cast<std::size_t>(chunk), index, layout_.size, param.numel});
    layout_.size += param.numel;
    if (param.further == FurtherSum::kStages ||
        layout_.size - layout_.buckets.back().begin >= bucket_elements_)
      close();
  }

  void close() {
    if (!open_) return;
    FlatBucket& bucket = layout_.buckets.back();
    bucket.last = layout_.entries.size();
    const std::int64_t alignment = std::lcm(std::int64_t{parts_.of(bucket.family)}, alignment_);
    bucket.end = layout_.size = bucket.begin + round_up(layout_.size - bucket.begin, alignment);
    open_ = false;
  }

  FlatLayout take() { return std::move(layout_); }

 private:
  std::int64_t bucket_elements_;
  Replicas parts_;
  std::int64_t alignment_;
  FlatLayout layout_;
  bool open_ = false;
};

/// Elements of one family that rank `rank` of `shards` owns.
std::int64_t owned_by(const FlatLayout& layout, Family family, int rank, int shards) {
  std::int64_t owned = 0;
  for (const FlatBucket& bucket : layout.buckets)
    if (bucket.family == family) owned += elements_in_part(layout, bucket, rank, shards);
  return owned;
}

}  // namespace

Levels levels_of(const config::Parallel& parallel, const Mesh& mesh) {
  const int instances = parallel.num_distributed_optimizer_instances;
  const auto inner = [&](Family family) { return std::max(1, mesh.size(data_axes(family)) / instances); };
  return {.inner = {inner(Family::kDense), inner(Family::kExpert)},
          .outer = {instances, instances},
          .outer_cut = parallel.outer_dp_sharding_strategy == "optim"};
}

FurtherSum further_sum(const ParamSpec& spec, const Shard& shard, int tp) {
  if (spec.family == Family::kExpert) {
    COL_CHECK(
        spec.partial.empty() && !shard.shared,
        "{}: gradients of experts must be whole but for their replicas; got one that is partial or shared; "
        "correct the placement",
        spec.name);
    return FurtherSum::kNone;
  }
  if (spec.held_by != HeldBy::kOneStage) {
    COL_CHECK(
        spec.partial.empty() && !shard.shared,
        "{}: gradients of what several stages hold must be whole but for the sum over them; got one that is "
        "partial or shared; correct the placement",
        spec.name);
    return FurtherSum::kStages;
  }
  if (tp == 1) return FurtherSum::kNone;
  if (spec.cut(Axis::kTp) != nullptr) return shard.shared ? FurtherSum::kSharedRows : FurtherSum::kNone;
  return spec.partial.has(Axis::kTp) ? FurtherSum::kTensor : FurtherSum::kNone;
}

bool may_wait(const ParamSpec& spec) {
  return spec.shape.size() == (spec.family == Family::kExpert ? 3U : 2U);
}

FlatLayout lay_out(const std::vector<std::vector<FlatParam>>& chunks, std::int64_t bucket_elements,
                   const Replicas& parts, std::int64_t alignment) {
  Filler filler(bucket_elements, parts, alignment);
  const auto place = [&](std::size_t chunk, Family family, FurtherSum further) {
    for (const bool waits : {false, true}) {
      for (std::size_t i = chunks[chunk].size(); i-- > 0;) {
        const FlatParam& param = chunks[chunk][i];
        if (param.family == family && param.further == further && param.waits == waits)
          filler.place(static_cast<int>(chunk), i, param);
      }
      filler.close();
    }
  };
  for (std::size_t c = 0; c < chunks.size(); ++c)
    for (const Family family : {Family::kDense, Family::kExpert})
      for (const FurtherSum further :
           {FurtherSum::kNone, FurtherSum::kTensor, FurtherSum::kSharedRows, FurtherSum::kStages})
        place(c, family, further);
  return filler.take();
}

std::int64_t elements_in_part(const FlatLayout& layout, const FlatBucket& bucket, int part, int parts) {
  const std::int64_t length = (bucket.end - bucket.begin) / parts, begin = bucket.begin + length * part;
  std::int64_t elements = 0;
  for (std::size_t i = bucket.first; i < bucket.last; ++i) {
    const FlatEntry& entry = layout.entries[i];
    const std::int64_t from = std::max(entry.begin, begin);
    const std::int64_t to = std::min(entry.begin + entry.numel, begin + length);
    elements += std::max<std::int64_t>(0, to - from);
  }
  return elements;
}

std::int64_t largest_shard(const FlatLayout& layout, const Replicas& shards) {
  // Whoever owns most of the dense part and whoever owns most of the experts may be one rank.
  std::int64_t most = 0;
  for (const Family family : {Family::kDense, Family::kExpert}) {
    std::int64_t most_of_family = 0;
    for (int rank = 0; rank < shards.of(family); ++rank)
      most_of_family = std::max(most_of_family, owned_by(layout, family, rank, shards.of(family)));
    most += most_of_family;
  }
  return most;
}

std::int64_t held_elements(const FlatLayout& layout, const Replicas& shards) {
  std::int64_t held = 0;
  for (const FlatBucket& bucket : layout.buckets)
    held += (bucket.end - bucket.begin) / shards.of(bucket.family);
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

std::int64_t travelling_element(const config::Parallel& parallel) {
  return parallel.grad_reduce_in_bf16 ? 2 : 4;
}

int waiting_sums(int microbatches) { return std::popcount(static_cast<unsigned>(microbatches)); }

std::int64_t bucket_elements(const config::Parallel& parallel, int replicas, std::int64_t parameters) {
  if (parallel.ddp_bucket_size > 0) return parallel.ddp_bucket_size;
  if (parallel.ddp_num_buckets > 0) return std::max<std::int64_t>(1, parameters / parallel.ddp_num_buckets);
  return std::max<std::int64_t>(40'000'000, 1'000'000LL * replicas);
}

std::int64_t bucket_alignment(const config::Parallel& parallel) {
  return parallel.ddp_pad_buckets_for_high_nccl_busbw ? kWideBucketAlignment : kBucketAlignment;
}

}  // namespace colonnade::layout
