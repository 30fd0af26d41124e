// See rank_classes.h.
#include "colonnade/cost/rank_classes.h"

#include <cmath>
#include <functional>
#include <map>
#include <tuple>

#include "colonnade/cost/flat_layout.h"
#include "colonnade/layout/context_groups.h"
#include "colonnade/layout/context_parallel.h"
#include "colonnade/layout/layer_kind.h"
#include "colonnade/layout/mesh.h"

namespace colonnade::cost {
namespace {

/// Properties of a rank that follow from its position, as numbers.
using Trait = std::vector<std::int64_t>;

/// A trait that depends only on some coordinates; computed once for each position on `axes`.
struct Aspect {
  layout::AxisSet axes;
  std::function<Trait(int rank)> trait;
  std::map<std::vector<int>, int> number_at = {};
  std::map<Trait, int> numbers = {};

  int number_of(const layout::Mesh& mesh, int rank) {
    std::vector<int> position;
    for (int i = 0; i < layout::kNumAxes; ++i)
      if (const auto axis = static_cast<layout::Axis>(i); axes.has(axis))
        position.push_back(mesh.coord(rank, axis));
    const auto [known, is_new] = number_at.try_emplace(std::move(position), 0);
    if (is_new)
      known->second = numbers.try_emplace(trait(rank), static_cast<int>(numbers.size())).first->second;
    return known->second;
  }
};

class Traits {
 public:
  explicit Traits(const config::Run& run)
      : run_(run),
        model_(run),
        equal_groups_(layout::with_fixed_context_size(run)),
        mesh_(run.parallel),
        levels_(layout::replica_levels(run.parallel, mesh_)),
        stages_(model_.stages_by_rank()) {
    for (const std::vector<layout::StageBlocks>& stages : stages_)
      layouts_.push_back(flat_layout(model_, mesh_, stages));
  }

  [[nodiscard]] const layout::Mesh& mesh() const { return mesh_; }

  /// Parameter shards of one parameter group.
  [[nodiscard]] Trait shards(int rank, layout::ParamGroup group) const {
    Trait trait;
    const auto& stages = stages_.at(stage(rank));
    const layout::Position position = mesh_.position(rank);
    const layout::FirstReaders first = layout::first_readers(run_.model, stages);
    for (const layout::StageBlocks& blocks : stages)
      for_each_stage_param(model_, blocks, first, [&](const layout::ParamSpec& spec, int) {
        if (spec.param_group != group) return;
        const layout::Shard held = layout::shard(spec, position);
        trait.insert(trait.end(), held.shape.begin(), held.shape.end());
        for (const layout::ShardBox& part : held.boxes) {
          trait.insert(trait.end(), part.length.begin(), part.length.end());
          trait.insert(trait.end(), {part.holders, part.owner ? 1 : 0});
        }
        trait.push_back(held.shared ? 1 : 0);
      });
    return trait;
  }

  /// Optimizer shards of the buckets of one parameter group.
  [[nodiscard]] Trait optimizer_shards(int rank, layout::ParamGroup group) const {
    const int inner = levels_.inner.of(group), outer = levels_.outer.of(group);
    const int index = mesh_.index(rank, layout::data_axes(group));
    const bool shared = layout::sharding_of(run_.parallel) >= layout::Sharding::kOptimizer && inner > 1;
    const int of_inner = shared ? inner : 1, of_outer = levels_.outer_sharded ? outer : 1;
    const int part = (shared ? index % inner : 0) * of_outer + (levels_.outer_sharded ? index / inner : 0);
    const bool counts = (shared || index % inner == 0) && (levels_.outer_sharded || index / inner == 0);
    Trait trait{counts ? 1 : 0, 0};
    const layout::FlatLayout& layout = layouts_.at(stage(rank));
    for (const layout::FlatBucket& bucket : layout.buckets) {
      if (bucket.param_group != group) continue;
      const int parts = of_inner * of_outer;
      const std::int64_t elements = layout::elements_in_shard(layout, bucket, part, parts);
      trait[1] += elements;
      trait.push_back(elements == 0 ? 0 : elements < (bucket.end - bucket.begin) / parts ? 1 : 2);
    }
    return trait.size() == 2 ? Trait() : trait;  // no parameters of this group
  }

  /// KV blocks of each kind of context-parallel attention.
  [[nodiscard]] Trait kv_blocks(int rank) const {
    const int cp = equal_groups_.parallel.context_parallel_size;
    if (cp == 1) return {};
    std::map<std::tuple<int, int, bool>, Trait> kinds;
    for (std::int64_t layer = 0; layer < run_.model.num_layers; ++layer) {
      const layout::LayerContextParallel kind = layout::context_layer(equal_groups_.parallel, layer);
      const int position = mesh_.index(rank, layout::data_axes(layout::ParamGroup::kDense)) % cp / kind.heads;
      kinds.try_emplace({kind.heads, kind.ring, kind.gathers}, attended_blocks(kind, position));
    }
    Trait trait;
    for (const auto& [kind, of_kind] : kinds) trait.insert(trait.end(), of_kind.begin(), of_kind.end());
    return trait;
  }

  [[nodiscard]] Trait dispatched_rows(int rank) const {
    const double load =
        layout::assumed_load(run_.model, mesh_.coord(rank, layout::Axis::kEp), mesh_.size(layout::Axis::kEp));
    return {std::llround(load * 1e6)};
  }

 private:
  [[nodiscard]] std::size_t stage(int rank) const {
    return static_cast<std::size_t>(mesh_.coord(rank, layout::Axis::kPp));
  }

  [[nodiscard]] Trait attended_blocks(const layout::LayerContextParallel& kind, int position) const {
    if (kind.ring == 1) return {};
    std::vector<layout::AttentionBlock> meetings;
    const std::int64_t length = equal_groups_.training.seq_length;
    if (kind.gathers) meetings = layout::remote_attention_blocks(length, position, kind.ring);
    for (int step = 1; !kind.gathers && step < kind.ring; ++step)
      meetings.push_back(
          layout::attention_block(length, position, (position - step + kind.ring) % kind.ring, kind.ring));
    Trait trait{layout::sends_first(position) && !kind.gathers ? 1 : 0};
    Trait before;
    for (std::size_t i = 0; i < meetings.size(); ++i) {
      const bool last = i + 1 == meetings.size();  // no hop overlaps it
      const Trait one{meetings[i].first_query, meetings[i].keys, last ? 1 : 0};
      if (one != before) trait.insert(trait.end(), one.begin(), one.end());
      before = one;
    }
    return trait;
  }

  const config::Run& run_;
  ModelBlocks model_;
  config::Run equal_groups_;  ///< with equal context-parallel groups for all sequences
  layout::Mesh mesh_;
  layout::ReplicaLevels levels_;
  std::vector<std::vector<layout::StageBlocks>> stages_;
  std::vector<layout::FlatLayout> layouts_;
};

}  // namespace

std::vector<int> rank_classes(const config::Run& run) {
  const Traits traits(run);
  const auto of = [&traits](auto trait, auto... more) {
    return [&traits, trait, more...](int rank) { return (traits.*trait)(rank, more...); };
  };
  const auto stage = [&traits](int rank) { return Trait{traits.mesh().coord(rank, layout::Axis::kPp)}; };
  std::vector<Aspect> aspects = {
      {{layout::Axis::kPp}, stage},
      {{layout::Axis::kDp, layout::Axis::kCp}, of(&Traits::kv_blocks)},
      {{layout::Axis::kEp}, of(&Traits::dispatched_rows)},
  };
  for (const layout::ParamGroup group : layout::kParamGroups) {
    const auto on_stages = [](layout::AxisSet axes) {
      axes.add(layout::Axis::kPp);
      return axes;
    };
    aspects.push_back({on_stages(layout::model_axes(group)), of(&Traits::shards, group)});
    aspects.push_back({on_stages(layout::data_axes(group)), of(&Traits::optimizer_shards, group)});
  }
  std::map<std::vector<int>, int> classes;
  std::vector<int> by_rank;
  for (int rank = 0; rank < run.parallel.world_size; ++rank) {
    std::vector<int> all;
    for (Aspect& aspect : aspects) all.push_back(aspect.number_of(traits.mesh(), rank));
    by_rank.push_back(classes.try_emplace(std::move(all), static_cast<int>(classes.size())).first->second);
  }
  return by_rank;
}

}  // namespace colonnade::cost
