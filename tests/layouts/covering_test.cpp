// Layouts in which every pair of ways to cut a run meets, each against the run on one rank. The list is
// searched for, not picked; pairs that cannot meet are stated here, and the rules of settings must refuse
// them.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "colonnade/config/dump.h"
#include "layouts/models.h"
#include "layouts/pairs.h"
#include "layouts/reduced.h"

namespace colonnade::test {
namespace {

using train::Precision;

constexpr std::size_t kWanted = 60;
constexpr int kMostRanks = 16;

enum : std::size_t {
  kModel,
  kTp,
  kSp,
  kCp,
  kKeys,
  kEp,
  kEtp,
  kRows,
  kPp,
  kVirtual,
  kSchedule,
  kDp,
  kSharding,
  kRecompute,
  kInstances
};

constexpr int kInOrder = 8;  // the first choice of kSharding that has an effect on one replica

/// A way to cut, and the words of each choice; "": what is without them.
struct Factor {
  const char* name;
  std::vector<std::string> choices;
};
const std::vector<Factor>& factors() {
  static const std::vector<Factor> kFactors = {
      {"model", {kTied, kUntied, kMixture, kFurther, kLatent, kWindowed}},
      {"--tensor-model-parallel-size", {"1", "2", "4"}},
      {"", {"", "--sequence-parallel"}},
      {"--context-parallel-size", {"1", "2", "4"}},
      {"--cp-comm-type",
       {"", "p2p", "all_gather", "a2a", "a2a+p2p --hierarchical-context-parallel-sizes 2 2"}},
      {"--expert-model-parallel-size", {"1", "2", "4"}},
      {"--expert-tensor-parallel-size", {"1", "2"}},
      {"--moe-token-dispatcher-type", {"allgather", "alltoall"}},
      {"--pipeline-model-parallel-size", {"1", "2", "4"}},
      {"virtual stages", {"1", "2", "3"}},
      {"",
       {"", "--pipeline-schedule gpipe", "--pipeline-schedule zb-h1", "--pipeline-schedule zb-v",
        "--pipeline-schedule dualpipe-v", "--delay-wgrad-compute"}},
      {"dp", {"1", "2", "4"}},
      {"",
       {"", "--overlap-grad-reduce --ddp-bucket-size 3000", "--use-distributed-optimizer",
        "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --ddp-bucket-size 3000",
        "--use-megatron-fsdp --data-parallel-sharding-strategy no_shard",
        "--use-megatron-fsdp --data-parallel-sharding-strategy optim",
        "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", "--use-megatron-fsdp",
        "--deterministic-mode", "--deterministic-mode --use-distributed-optimizer"}},
      {"",
       {"", "--recompute-activations", "--recompute-granularity selective --recompute-modules layernorm mlp",
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
        "--recompute-granularity full --recompute-method block --recompute-num-layers 1",
        "--recompute-granularity selective --recompute-modules core_attn moe"}},
      {"--num-distributed-optimizer-instances", {"1", "2", "2 --outer-dp-sharding-strategy optim"}},
  };
  return kFactors;
}

/// Choices of two factors that never meet, and why: they are refused, or one of them would do nothing.
struct Apart {
  std::size_t factor;
  std::vector<int> choices;
  std::size_t other;
  std::vector<int> other_choices;
  const char* why;
  bool idle = false;  ///< accepted, but to no effect
};
const std::vector<Apart>& never_together() {
  static const std::vector<Apart> kApart = {
      {kModel, {0, 1, 3, 5}, kEp, {1, 2}, "no experts"},
      {kModel, {0, 1, 3, 5}, kRows, {1}, "no experts", true},
      {kModel, {0, 1, 3, 5}, kEtp, {1}, "no experts", true},
      {kTp, {0}, kSp, {1}, "nothing to share", true},
      {kCp, {0}, kKeys, {1, 2, 3, 4}, "nobody to exchange keys with", true},
      {kCp, {1, 2}, kKeys, {0}, "every kind is named", true},
      {kCp, {1}, kKeys, {4}, "two levels of two need four ranks"},
      {kPp, {0}, kVirtual, {1, 2}, "one stage"},
      {kPp, {0}, kSchedule, {1, 2, 3, 4}, "one stage", true},
      {kPp, {0}, kSchedule, {5}, "no gap to fill"},
      {kVirtual, {1, 2}, kSchedule, {1, 2}, "schedules of one stage a rank"},
      {kVirtual, {2}, kSchedule, {3, 4}, "a V has two stages a rank"},
      {kModel, {0, 1, 3, 5}, kRecompute, {5}, "no experts"},
      {kSharding, {0, 1, 4, 8}, kInstances, {1, 2}, "nobody shares"},
      {kSharding, {9}, kInstances, {1, 2}, "sums in one order", true},
  };
  return kApart;
}

/// The row that says so; null when they may meet.
const Apart* apart(const Pair& pair) {
  const auto has = [](const std::vector<int>& all, int one) { return std::ranges::count(all, one) > 0; };
  const auto row = std::ranges::find_if(never_together(), [&](const Apart& one) {
    return static_cast<std::size_t>(pair.i) == one.factor && static_cast<std::size_t>(pair.j) == one.other &&
           has(one.choices, pair.a) && has(one.other_choices, pair.b);
  });
  return row == never_together().end() ? nullptr : &*row;
}

/// Four layers on `stages` stages, the first with the embedding, the last with the head; the layer of a
/// further token there, or in the stage before where there are many.
std::string spread(int stages, bool further) {
  std::vector<std::string> blocks(static_cast<std::size_t>(stages));
  blocks.front() = "E";
  for (std::size_t layer = 0; layer < 4; ++layer) blocks[1 + layer * (blocks.size() - 2) / 4] += 't';
  if (further) blocks[blocks.size() - (stages > 4 ? 2 : 1)] += 'm';
  blocks.back() += 'L';
  return fmt::format("{}", fmt::join(blocks, "|"));
}

/// Whether a mixture's experts, where their cuts are chosen, are held by two ranks at least.
bool has_twin_experts(const Choice& choice) {
  int twins = 1;
  for (const std::size_t factor : {kTp, kCp, kDp}) twins <<= std::max(choice[factor], 0);
  for (const std::size_t factor : {kEp, kEtp}) twins >>= std::max(choice[factor], 0);
  return twins > 1;
}

/// Whether the model of a choice is a mixture.
bool has_experts(const Choice& choice) { return choice[kModel] == 2 || choice[kModel] == 4; }

/// Whether the ranks are few enough, a mixture's sequences are shared with tensor parallelism, and there are
/// replicas where something is done among them.
bool fits(const Choice& choice) {
  const bool alone = choice[kDp] == 0 && choice[kCp] == 0;
  if (alone && choice[kSharding] > 0 && choice[kSharding] < kInOrder) return false;
  if (alone && choice[kInstances] > 0) return false;
  const bool sized = choice[kTp] >= 0 && choice[kCp] >= 0 && choice[kDp] >= 0;
  if (has_experts(choice) && choice[kInstances] > 0 && sized && !has_twin_experts(choice)) return false;
  int world = 1;
  for (const std::size_t factor : {kTp, kCp, kPp, kDp})
    if (choice[factor] > 0) world *= 1 << choice[factor];
  return world <= kMostRanks && !(has_experts(choice) && choice[kTp] > 0 && choice[kSp] == 0);
}

/// A choice as ranks and flags.
struct Layout {
  explicit Layout(const Choice& choice) {
    const auto word = [&](std::size_t factor) -> const std::string& {
      return factors()[factor].choices[static_cast<std::size_t>(choice[factor])];
    };
    model = word(kModel);
    const int pp = std::stoi(word(kPp)), stages = pp * std::stoi(word(kVirtual));
    world = std::stoi(word(kTp)) * std::stoi(word(kCp)) * pp * std::stoi(word(kDp));
    for (std::size_t factor = 0; factor < factors().size(); ++factor) {
      const bool by_ranks = factor == kModel || factor == kVirtual || factor == kDp;
      if (!by_ranks && (choice[factor] > 0 || (factor == kEtp && has_experts(choice))))
        flags += fmt::format("{} {} ", factors()[factor].name, word(factor));
    }
    if (pp == 1 && stages > pp) flags += fmt::format("--num-virtual-stages-per-pipeline-rank {} ", stages);
    if (pp > 1 && stages > pp)
      flags += fmt::format("--pipeline-model-parallel-layout {} ", spread(stages, model == kFurther));
  }
  std::string model, flags;
  int world = 1;
};

Space space() {
  Space space{.apart = [](const Pair& pair) { return apart(pair) != nullptr; },
              .fits = fits,
              .cost = [](const Choice& choice) { return std::sqrt(Layout(choice).world); },
              .sound =
                  [](const Choice& choice) {
                    const Layout layout(choice);
                    return layout.world > 1 && small_run(layout.world, layout.model + layout.flags);
                  }};
  for (const Factor& factor : factors()) space.sizes.push_back(static_cast<int>(factor.choices.size()));
  return space;
}

std::string text(const Pair& pair) {
  const auto one = [](int factor, int choice) {
    const Factor& f = factors()[static_cast<std::size_t>(factor)];
    return fmt::format("{} {}", f.name, f.choices[static_cast<std::size_t>(choice)]);
  };
  return fmt::format("{} with {}", one(pair.i, pair.a), one(pair.j, pair.b));
}

/// Both runs as files, and what to type to see them apart.
std::string command(const Layout& layout) {
  static int number = 0;
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / fmt::format("colonnade_covering_{}", number++);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "A.yaml") << config::dump(*small_run(1, layout.model));
  std::ofstream(folder / "B.yaml") << config::dump(*small_run(layout.world, layout.model + layout.flags));
  return fmt::format("colonnade verify-layout {0}/A.yaml {0}/B.yaml --world-sizes 1 {1}", folder.string(),
                     layout.world);
}

/// Without the numbers of layers and buckets, and of the ranks of a level.
Reduction kind_of(Reduction reduction) {
  std::string& what = reduction.what;
  if (const auto list = what.find(" ("); list != std::string::npos)
    what.erase(list, what.find(')') + 1 - list);
  for (std::string* text : {&what, &reduction.axes})
    std::erase_if(*text, [](char c) { return c >= '0' && c <= '9'; });
  return reduction;
}

/// Kinds that mutations_test leaves out.
const std::set<Reduction>& kinds_of_small_layouts() {
  static const std::set<Reduction> kKinds = [] {
    std::set<Reduction> kinds;
    for (const Small& layout : small_layouts()) {
      Reductions reductions;
      one_step(layout, reductions);
      for (const Reduction& one : reductions.seen) kinds.insert(kind_of(one));
    }
    return kinds;
  }();
  return kKinds;
}

void expect_agreement(const Layout& layout) {
  const config::Run run = *small_run(layout.world, layout.model + layout.flags);
  Reductions reductions;
  const train::Side cut{.run = run, .between = between(reductions)};
  for (const auto& [steps, precision] :
       {std::pair{1, Precision::kFloat64}, std::pair{3, Precision::kOfSettings}}) {
    const auto apart = train::compare(unsplit(layout.model, steps, precision),
                                      train::train_layout(cut, samples(cut.run), steps, precision))
                           .first;
    EXPECT_FALSE(apart) << apart->what << ' ' << apart->distance << '\n' << command(layout);
  }
  for (const Reduction& one : reductions.seen)
    EXPECT_TRUE(kinds_of_small_layouts().contains(kind_of(one)))
        << one.operation << " over " << one.axes << ", " << one.what
        << ": in no layout of small_layouts(), so that nobody knows what happens without it";
}

TEST(Covering, EveryPairOfCutsMeetsAndAllLayoutsAgreeWithOneRank) {
  const Covering found = cover(space(), kWanted);
  for (const Pair& pair : found.missed) ADD_FAILURE() << "no layout has " << text(pair);
  EXPECT_GE(found.choices.size(), kWanted);
  Pairs met;
  for (const Choice& choice : found.choices) {
    const Layout layout(choice);
    SCOPED_TRACE(fmt::format("{} ranks: {}{}", layout.world, layout.model, layout.flags));
    expect_agreement(layout);
    met.merge(pairs_of(choice));
  }
  for (const Pair& pair : all_pairs(space().sizes))
    EXPECT_NE(met.contains(pair), apart(pair) != nullptr) << text(pair);
}

/// Whether another choice of one factor makes it sound.
bool mended_by(const Space& all, Choice choice, int factor) {
  for (int other = 0; other < all.sizes[static_cast<std::size_t>(factor)]; ++other) {
    choice[static_cast<std::size_t>(factor)] = other;
    if (all.sound(choice)) return true;
  }
  return false;
}

/// Whatever stands beside them; and there is a layout that nothing but the two keeps from being one.
TEST(Covering, WhatIsSaidNeverToMeetIsRefused) {
  const Space all = space();
  Draw draw(all);
  for (const Pair& pair : all_pairs(all.sizes)) {
    if (!apart(pair) || apart(pair)->idle) continue;
    bool alone = false;
    for (int i = 0; i < 40 && (i < 4 || !alone); ++i) {
      const auto choice = draw.around(pair, {});
      if (!choice) continue;
      EXPECT_FALSE(all.sound(*choice)) << text(pair) << ", said to be refused: " << apart(pair)->why;
      alone = alone || mended_by(all, *choice, pair.i) || mended_by(all, *choice, pair.j);
    }
    EXPECT_TRUE(alone) << text(pair) << ": refused for other reasons at least";
  }
}

}  // namespace
}  // namespace colonnade::test
