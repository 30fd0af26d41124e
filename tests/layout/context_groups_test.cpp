// Hybrid context-parallel groups: every sequence once, within the capacity of its ranks, and better balanced
// than with one group size.
#include "colonnade/layout/context_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numbers>
#include <numeric>
#include <random>

#include "colonnade/base/error.h"
#include "colonnade/schedule/program.h"

namespace colonnade::layout {
namespace {

schedule::Schedule one_f_one_b(int ranks, int microbatches) {
  return schedule::one_f_one_b(ranks, microbatches);
}

/// Log-normal lengths around exp(7.5) tokens, at most 131072, like web documents and a few books.
std::vector<std::int64_t> long_tailed(std::uint64_t seed, std::size_t count) {
  std::mt19937_64 random(seed);
  const auto uniform = [&] { return (static_cast<double>(random() >> 11) + 0.5) * 0x1.0p-53; };
  std::vector<std::int64_t> lengths;
  for (std::size_t i = 0; i < count; ++i) {
    const double normal = std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform());
    lengths.push_back(
        std::clamp<std::int64_t>(static_cast<std::int64_t>(std::exp(7.5 + 1.5 * normal)), 64, 131072));
  }
  return lengths;
}

double even(const std::vector<std::int64_t>& lengths, int ranks) {
  double pairs = 0;
  for (const std::int64_t length : lengths) pairs += attention_pairs(length);
  return pairs / ranks;
}

TEST(ContextGroups, HoldEverySequenceOnceOnEnoughRanks) {
  constexpr int kRanks = 32;
  constexpr std::int64_t kTokens = 8192;
  const auto lengths = long_tailed(3, 300);
  for (const ContextGroups& groups :
       {context_groups(lengths, kRanks, kTokens), equal_context_groups(lengths, kRanks, kTokens)}) {
    std::vector<int> seen(lengths.size(), 0);
    std::vector<double> work(kRanks, 0);  // without waits
    for (const SequenceAssignment& share : groups.shares) {
      ++seen[share.sequence];
      EXPECT_EQ(share.first % share.ranks, 0);
      EXPECT_LE(share.first + share.ranks, kRanks);
      EXPECT_LE(lengths[share.sequence], share.ranks * kTokens);
      for (int r = share.first; r < share.first + share.ranks; ++r)
        work[static_cast<std::size_t>(r)] += attention_pairs(lengths[share.sequence]) / share.ranks;
    }
    EXPECT_EQ(seen, std::vector<int>(lengths.size(), 1));
    for (std::size_t r = 0; r < work.size(); ++r)
      EXPECT_NEAR(work[r], groups.work[r], 1e-9 * work[r]) << "no rank waits for a group";
  }
}

TEST(ContextGroups, AssignMoreRanksToLongSequences) {
  const auto groups = context_groups({100, 64000, 100, 16000}, 8, 8192);
  ASSERT_EQ(groups.shares.size(), 4);
  EXPECT_EQ(groups.shares[0].sequence, 1);
  EXPECT_EQ(groups.shares[0].ranks, 8);
  EXPECT_EQ(groups.shares[1].sequence, 3);
  EXPECT_EQ(groups.shares[1].ranks, 2);
  EXPECT_EQ(groups.shares[2].ranks, 1);
  EXPECT_NE(groups.shares[2].first, groups.shares[3].first);
  EXPECT_EQ(context_groups({8192}, 8, 8192).shares[0].ranks, 8) << "a single sequence is split to balance "
                                                                   "the work";
}

// Design goal: at least 1.40 times less attention on the busiest rank.
TEST(ContextGroups, BalanceBetterThanOneGroupSize) {
  double hybrid = 0, equal = 0, ideal = 0;
  for (std::uint64_t batch = 0; batch < 20; ++batch) {
    const auto lengths = long_tailed(batch, 512);
    hybrid += context_groups(lengths, 64, 16384).longest();
    equal += equal_context_groups(lengths, 64, 16384).longest();
    ideal += even(lengths, 64);
  }
  EXPECT_GT(equal / hybrid, 1.40);
  EXPECT_LT(hybrid / ideal, 1.10);
  RecordProperty("equal_over_hybrid", std::to_string(equal / hybrid));
}

TEST(ContextGroups, ListTheSequencesOfEveryRank) {
  const auto groups = context_groups({100, 64000, 100, 16000}, 8, 8192);
  std::vector<double> work(8, 0);
  for (int rank = 0; rank < 8; ++rank)
    for (const SequenceAssignment& share : groups.of(rank)) {
      EXPECT_TRUE(share.first <= rank && rank < share.first + share.ranks);
      work[static_cast<std::size_t>(rank)] += static_cast<double>(share.ranks);
    }
  double assigned = 0;
  for (const double w : work) assigned += w;
  EXPECT_EQ(assigned, 8 * 8 + 2 * 2 + 1 + 1);
  EXPECT_DOUBLE_EQ(groups.mean() * 8, std::accumulate(groups.work.begin(), groups.work.end(), 0.0));
}

/// Simulated rank (data coordinate, pipeline stage) that runs its sequences by a schedule.
struct SimulatedRank {
  int coordinate, stage;
  std::vector<SequenceAssignment> shares;
  schedule::Schedule schedule;
  std::size_t at = 0;
  [[nodiscard]] const schedule::Program& program() const {
    return schedule.programs[static_cast<std::size_t>(stage)];
  }
  [[nodiscard]] bool done() const { return at == program().size(); }
  [[nodiscard]] const SequenceAssignment& share() const {
    return shares[static_cast<std::size_t>(program()[at].microbatch)];
  }
};

/// Simulation in which forward and backward of a split sequence need all of its ranks at once, and receives
/// need their message.
class World {
 public:
  /// With `passes`, all ranks run that many micro-batches, in each of which `together` adjacent ranks
  /// synchronize, as expert-parallel ranks do.
  World(const ContextGroups& groups, int ranks, int stages,
        const std::function<schedule::Schedule(int, int)>& make, int passes = 0, int together = 1)
      : ranks_(ranks), stages_(stages), together_(together) {
    for (int d = 0; d < ranks; ++d)
      for (int p = 0; p < stages; ++p) {
        auto shares = groups.of(d);
        if (passes > 0)
          shares.resize(static_cast<std::size_t>(passes), {.sequence = 0, .first = d, .ranks = 1});
        schedule::Schedule schedule = make(stages, static_cast<int>(shares.size()));
        simulated_.push_back({d, p, std::move(shares), std::move(schedule)});
      }
  }
  bool completes() {
    for (bool moved = true; moved;) {
      moved = false;
      for (SimulatedRank& w : simulated_)
        while (!w.done() && step(w)) moved = true;
    }
    return std::ranges::all_of(simulated_, &SimulatedRank::done);
  }

 private:
  SimulatedRank& rank_at(int coordinate, int stage) {
    return simulated_[static_cast<std::size_t>(coordinate * stages_ + stage)];
  }
  bool step(SimulatedRank& w) {
    const schedule::Action& a = w.program()[w.at];
    auto& messages = [&]() -> std::vector<int>& {
      const int here = w.stage + stages_;  // interleaved stages continue at the first rank
      const int from = (a.kind == schedule::ActionKind::kRecvActivation ? here - 1
                        : a.kind == schedule::ActionKind::kRecvGradient ? here + 1
                                                                        : here) %
                       stages_;
      const bool forward =
          a.kind == schedule::ActionKind::kSendActivation || a.kind == schedule::ActionKind::kRecvActivation;
      return messages_[{w.coordinate, from, forward}];
    }();
    if (schedule::is_send(a.kind)) messages.push_back(a.microbatch);
    if (schedule::is_receive(a.kind)) {
      if (messages.empty()) return false;
      EXPECT_EQ(messages.front(), a.microbatch);
      messages.erase(messages.begin());
    }
    if (a.kind != schedule::ActionKind::kForward && !schedule::computes_input_grad(a.kind))
      return ++w.at, true;
    int size = std::max(w.share().ranks, together_);
    const auto first = [&] { return w.coordinate / size * size; };
    for (int d = first(); d < first() + size; ++d) {
      const SimulatedRank& other = rank_at(d, w.stage);
      if (other.done()) return false;
      const schedule::Action& theirs = other.program()[other.at];
      if (theirs.kind != a.kind || (together_ > 1 && other.at != w.at)) return false;
      if (w.share().ranks > 1 && d >= w.share().first && d < w.share().first + w.share().ranks &&
          other.share().sequence != w.share().sequence)
        return false;
      if (other.share().ranks > size) size = other.share().ranks, d = first() - 1;
    }
    for (int d = first(); d < first() + size; ++d) ++rank_at(d, w.stage).at;
    return true;
  }

  int ranks_, stages_, together_;
  std::vector<SimulatedRank> simulated_;
  std::map<std::tuple<int, int, bool>, std::vector<int>> messages_;
};

TEST(ContextGroups, DoNotDeadlockInAnySchedule) {
  const std::vector<std::pair<const char*, std::function<schedule::Schedule(int, int)>>> kinds{
      {"1f1b", one_f_one_b},
      {"gpipe", schedule::gpipe},
      {"zb-h1", schedule::zb_h1},
      {"delayed",
       [](int ranks, int n) { return schedule::with_delayed_wgrad(schedule::one_f_one_b(ranks, n)); }}};
  std::mt19937_64 random(5);
  int several = 0;
  for (int trial = 0; trial < 200; ++trial) {
    const int ranks = 2 << (random() % 4), stages = 1 << (random() % 4);
    const auto lengths = long_tailed(random(), 1 + random() % 40);
    const ContextGroups groups = context_groups(lengths, ranks, 131072 / ranks);
    several += groups.of(0).size() == groups.of(ranks - 1).size() ? 0 : 1;
    for (int rank = 0; rank < ranks; ++rank)
      EXPECT_FALSE(groups.of(rank).empty()) << "rank " << rank << " of " << ranks << ", trial " << trial;
    for (const auto& [name, make] : kinds)
      EXPECT_TRUE(World(groups, ranks, stages, make).completes())
          << name << " with " << stages << " stages on " << ranks << " ranks, trial " << trial;
  }
  EXPECT_GT(several, 50) << "ranks have different numbers of sequences";
}

TEST(ContextGroups, EqualPassesAllowCollectivesInEachPass) {
  std::mt19937_64 random(7);
  int stuck = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const int ranks = 2 << (random() % 3), stages = 2 << (random() % 2), together = 2 << (random() % 2);
    const auto lengths = long_tailed(random(), 1 + random() % 40);
    const ContextGroups groups = context_groups(lengths, ranks, 131072 / ranks);
    const int most = groups.most(lengths, 0), passes = (most + stages - 1) / stages * stages;
    int counted = 0;
    for (int rank = 0; rank < ranks; ++rank)
      counted = std::max(counted, static_cast<int>(groups.of(rank).size()));
    EXPECT_EQ(most, counted);
    const auto loop = [](int pipeline, int n) { return schedule::interleaved(pipeline, 2, n, pipeline); };
    const int sharing = std::min(together, ranks);
    EXPECT_TRUE(World(groups, ranks, stages, one_f_one_b, passes, sharing).completes()) << trial;
    EXPECT_TRUE(World(groups, ranks, stages, loop, passes, sharing).completes()) << trial;
    stuck += World(groups, ranks, stages, one_f_one_b, 0, sharing).completes() ? 0 : 1;
  }
  EXPECT_GT(stuck, 20) << "ranks with different numbers of passes would deadlock";
}

TEST(ContextGroups, SmallerGroupsFirstWouldDeadlock) {
  ContextGroups groups;
  groups.shares = {{0, 0, 1}, {1, 0, 2}, {2, 1, 1}};
  EXPECT_TRUE(World(groups, 2, 1, one_f_one_b).completes()) << "one stage has no other "
                                                               "dependencies";
  groups.shares = {{0, 0, 2}, {1, 0, 2}, {2, 1, 1}};
  std::swap(groups.shares[1], groups.shares[2]);
  EXPECT_FALSE(World(groups, 2, 4, one_f_one_b).completes());
}

TEST(ContextGroups, SequencesArePaddedToEqualChunksAndShards) {
  EXPECT_EQ(padded_length(13, 1, 1), 13);
  EXPECT_EQ(padded_length(13, 1, 4), 16);
  EXPECT_EQ(padded_length(13, 2, 1), 16);
  EXPECT_EQ(padded_length(17, 4, 1), 24);
  EXPECT_EQ(padded_length(17, 2, 3), 24);
  EXPECT_EQ(padded_length(16, 8, 1), 16);
}

TEST(ContextGroups, OfFullSamplesHaveOneContextSize) {
  config::Run run;
  run.parallel.world_size = 16;
  run.parallel.tensor_model_parallel_size = 2;
  run.parallel.hybrid_context_parallel = true;
  run.parallel.max_seqlen_per_dp_cp_rank = 1024;
  run.training = {.micro_batch_size = 1, .global_batch_size = 24, .seq_length = 4096};
  const config::Run equal = with_fixed_context_size(run);
  EXPECT_FALSE(equal.parallel.hybrid_context_parallel);
  EXPECT_EQ(equal.parallel.context_parallel_size, 4);
  EXPECT_EQ(equal.training.seq_length, 4096);
  EXPECT_EQ(equal.training.global_batch_size, 24);
  const std::vector<std::int64_t> samples(24, 4096);
  for (const SequenceAssignment& share : context_groups(samples, 8, 1024).shares) EXPECT_EQ(share.ranks, 4);
  run.parallel.max_seqlen_per_dp_cp_rank = 1500;
  EXPECT_EQ(with_fixed_context_size(run).training.seq_length, 4 * 1500) << "the limit per rank";
  run.parallel.hybrid_context_parallel = false;
  EXPECT_EQ(with_fixed_context_size(run), run);
}

TEST(ContextGroups, RejectSequencesThatDoNotFit) {
  EXPECT_THROW(context_groups({100000}, 8, 8192), Error);
  EXPECT_THROW(context_groups({100}, 6, 8192), Error);
  EXPECT_TRUE(context_groups({}, 8, 8192).shares.empty());
}

}  // namespace
}  // namespace colonnade::layout
