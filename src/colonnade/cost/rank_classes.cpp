// See rank_classes.h.
#include "colonnade/cost/rank_classes.h"

#include <cmath>
#include <functional>
#include <map>
#include <tuple>

#include "colonnade/cost/flat_layout.h"
#include "colonnade/layout/context_groups.h"
#include "colonnade/layout/context_parallel.h"
#include "colonnade/layout/expert_capacity.h"
#include "colonnade/layout/mesh.h"

namespace colonnade::cost {
namespace {

/// What a place gives a rank, as numbers.
using Trait = std::vector<std::int64_t>;

/// Something that depends on some coordinates alone: found once for each place on them.
struct Aspect {
  std::vector<layout::Axis> axes;
  std::function<Trait(int rank)> trait;
  std::map<std::vector<int>, int> number_at = {};
  std::map<Trait, int> numbers = {};

  int number_of(const layout::Mesh& mesh, int rank) {
    std::vector<int> place;
    for (const layout::Axis axis : axes) place.push_back(mesh.coord(rank, axis));
    const auto [known, is_new] = number_at.try_emplace(std::move(place), 0);
    if (is_new)
      known->second = numbers.try_emplace(trait(rank), static_cast<int>(numbers.size())).first->second;
    return known->second;
  }
};

class Traits {
 public:
  explicit Traits(const config::Run& run)
      : run_(run),
        equal_(layout::with_equal_groups(run)),
        mesh_(run.parallel),
        levels_(layout::levels_of(run.parallel, mesh_)) {
    for (int stage = 0; stage < mesh_.size(layout::Axis::kPp); ++stage) {
      stages_.push_back(layout::stages_of_rank(run.model, run.parallel, stage));
      layouts_.push_back(flat_layout(run, mesh_, stages_.back()));
    }
  }

  [[nodiscard]] const layout::Mesh& mesh() const { return mesh_; }

  /// Shards of the parameters of one family.
  [[nodiscard]] Trait shards(int rank, layout::Family family) const {
    Trait trait;
    const auto& stages = stages_.at(stage(rank));
    const layout::Position position = mesh_.position(rank);
    const layout::FirstReaders first = layout::first_readers(run_.model, stages);
    for (const layout::StageBlocks& blocks : stages)
      for_each_held(run_, blocks, first, [&](const layout::ParamSpec& spec, int) {
        if (spec.family != family) return;
        const layout::Shard held = layout::shard(spec, position);
        trait.insert(trait.end(), held.shape.begin(), held.shape.end());
        for (const layout::Part& part : held.parts) {
          trait.insert(trait.end(), part.length.begin(), part.length.end());
          trait.insert(trait.end(), {part.holders, part.owner ? 1 : 0});
        }
        trait.push_back(held.shared ? 1 : 0);
      });
    return trait;
  }

  /// Its parts of the buckets of one family, for the optimizer.
  [[nodiscard]] Trait updated(int rank, layout::Family family) const {
    const int inner = levels_.inner.of(family), outer = levels_.outer.of(family);
    const int index = mesh_.index(rank, layout::data_axes(family));
    const bool shared = layout::sharding_of(run_.parallel) >= layout::Sharding::kOptimizer && inner > 1;
    const int of_inner = shared ? inner : 1, of_outer = levels_.outer_cut ? outer : 1;
    const int part = (shared ? index % inner : 0) * of_outer + (levels_.outer_cut ? index / inner : 0);
    const bool counts = (shared || index % inner == 0) && (levels_.outer_cut || index / inner == 0);
    Trait trait{counts ? 1 : 0, 0};
    const layout::FlatLayout& layout = layouts_.at(stage(rank));
    for (const layout::FlatBucket& bucket : layout.buckets) {
      if (bucket.family != family) continue;
      const int parts = of_inner * of_outer;
      const std::int64_t elements = layout::elements_in_part(layout, bucket, part, parts);
      trait[1] += elements;
      trait.push_back(elements == 0 ? 0 : elements < (bucket.end - bucket.begin) / parts ? 1 : 2);
    }
    return trait.size() == 2 ? Trait() : trait;  // nothing of this family
  }

  /// Of each kind of attention among context ranks.
  [[nodiscard]] Trait blocks_of_keys(int rank) const {
    const int cp = equal_.parallel.context_parallel_size;
    if (cp == 1) return {};
    std::map<std::tuple<int, int, bool>, Trait> kinds;
    for (std::int64_t layer = 0; layer < run_.model.num_layers; ++layer) {
      const layout::ContextLayer kind = layout::context_layer(equal_.parallel, layer);
      const int place = mesh_.index(rank, layout::data_axes(layout::Family::kDense)) % cp / kind.heads;
      kinds.try_emplace({kind.heads, kind.ring, kind.gathers}, met(kind, place));
    }
    Trait trait;
    for (const auto& [kind, of_kind] : kinds) trait.insert(trait.end(), of_kind.begin(), of_kind.end());
    return trait;
  }

  [[nodiscard]] Trait received(int rank) const {
    const double share = layout::assumed_share(run_.model.moe, mesh_.coord(rank, layout::Axis::kEp),
                                               mesh_.size(layout::Axis::kEp));
    return {std::llround(share * 1e6)};
  }

 private:
  [[nodiscard]] std::size_t stage(int rank) const {
    return static_cast<std::size_t>(mesh_.coord(rank, layout::Axis::kPp));
  }

  [[nodiscard]] Trait met(const layout::ContextLayer& kind, int place) const {
    if (kind.ring == 1) return {};
    std::vector<layout::Meeting> meetings;
    const std::int64_t length = equal_.training.seq_length;
    if (kind.gathers) meetings = layout::meetings_with_others(length, place, kind.ring);
    for (int step = 1; !kind.gathers && step < kind.ring; ++step)
      meetings.push_back(layout::meeting(length, place, (place - step + kind.ring) % kind.ring, kind.ring));
    Trait trait{layout::sends_first(place) && !kind.gathers ? 1 : 0};
    Trait before;
    for (std::size_t i = 0; i < meetings.size(); ++i) {
      const bool last = i + 1 == meetings.size();  // nothing travels beside it
      const Trait one{meetings[i].first_query, meetings[i].keys, last ? 1 : 0};
      if (one != before) trait.insert(trait.end(), one.begin(), one.end());
      before = one;
    }
    return trait;
  }

  const config::Run& run_;
  config::Run equal_;  ///< whose ranks share all sequences alike
  layout::Mesh mesh_;
  layout::Levels levels_;
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
      {{layout::Axis::kPp, layout::Axis::kTp}, of(&Traits::shards, layout::Family::kDense)},
      {{layout::Axis::kPp, layout::Axis::kEtp, layout::Axis::kEp},
       of(&Traits::shards, layout::Family::kExpert)},
      {{layout::Axis::kPp, layout::Axis::kDp, layout::Axis::kCp},
       of(&Traits::updated, layout::Family::kDense)},
      {{layout::Axis::kPp, layout::Axis::kEdp}, of(&Traits::updated, layout::Family::kExpert)},
      {{layout::Axis::kDp, layout::Axis::kCp}, of(&Traits::blocks_of_keys)},
      {{layout::Axis::kEp}, of(&Traits::received)},
  };
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
