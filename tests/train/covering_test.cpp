// Layouts that cover every pair of ways to cut a run, and more until there are enough, each against the run
// on one rank. The list is searched for, not picked: whatever the rules of settings allow is a candidate.
#include <gtest/gtest.h>

#include <set>

#include "colonnade/base/philox.h"
#include "colonnade/train/compare_layouts.h"
#include "job/runs.h"

namespace colonnade::train {
namespace {

using test::words;

// Dense layers and mixtures by turns; enough of everything for every cut.
constexpr const char* kModel =
    "--num-layers 8 --hidden-size 32 --ffn-hidden-size 48 --num-attention-heads 8 --group-query-attention "
    "--num-query-groups 4 --vocab-size 61 --seq-length 32 --max-position-embeddings 32 --micro-batch-size 1 "
    "--global-batch-size 16 --hidden-dropout 0.1 --attention-dropout 0 --position-embedding-type rope --num-experts 4 "
    "--moe-layer-freq 2 --moe-ffn-hidden-size 16 --moe-router-topk 2 --moe-router-load-balancing-type aux_loss "
    "--moe-aux-loss-coeff 0.01 --moe-z-loss-coeff 0.001 --disable-bias-linear --swiglu --init-method-std 0.1 ";

constexpr std::size_t kWanted = 60;
constexpr int kMostRanks = 16;

/// A choice of each factor, as words of a command line.
struct Factor {
  const char* name;
  std::vector<std::string> choices;
};
const std::vector<Factor>& factors() {
  static const std::vector<Factor> kFactors = {
      {"tp", {"1", "2", "4"}},
      {"cp", {"1", "2", "4"}},
      {"ep", {"1", "2", "4"}},
      {"etp", {"1", "2"}},
      {"pp", {"1", "2", "4"}},
      {"dp", {"1", "2", "4"}},
      {"schedule",
       {"", "--num-virtual-stages-per-pipeline-rank 2 ", "--pipeline-schedule gpipe ",
        "--pipeline-schedule zb-h1 ", "--pipeline-schedule zb-v ", "--pipeline-schedule dualpipe-v "}},
      {"optimizer",
       {"", "--use-distributed-optimizer ",
        "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather "}},
      {"keys", {"p2p", "all_gather", "a2a", "a2a+p2p"}},
      {"rows", {"allgather", "alltoall"}}};
  return kFactors;
}

using Choice = std::vector<int>;  // of each factor

/// Words and world size; no world when a choice would mean nothing.
struct Layout {
  explicit Layout(const Choice& choice) {
    const auto word = [&](std::size_t i) {
      return factors()[i].choices[static_cast<std::size_t>(choice[i])];
    };
    const int tp = std::stoi(word(0)), cp = std::stoi(word(1)), pp = std::stoi(word(4)),
              dp = std::stoi(word(5));
    const bool idle = (cp == 1 && choice[8] > 0) || (pp == 1 && choice[6] > 0) ||
                      (cp != 4 && choice[8] == 3) || (dp * cp == 1 && choice[7] > 0);
    if (idle || tp * cp * pp * dp > kMostRanks) return;
    world = tp * cp * pp * dp;
    flags = fmt::format(
        "--tensor-model-parallel-size {} --context-parallel-size {} --expert-model-parallel-size {} "
        "--expert-tensor-parallel-size {} --pipeline-model-parallel-size {} {}{}--moe-token-dispatcher-type {} ",
        tp, cp, word(2), word(3), pp, word(6), word(7), word(9));
    if (cp > 1) flags += fmt::format("--cp-comm-type {} ", word(8));
    if (choice[8] == 3) flags += "--hierarchical-context-parallel-sizes 2 2 ";
    if (tp > 1) flags += "--sequence-parallel ";  // mixtures need it
  }
  int world = 0;
  std::string flags;
};

std::optional<config::Run> run_of(const Layout& layout) {
  try {
    return test::settings(layout.world, words(kModel + layout.flags));
  } catch (const ConfigError&) {
    return std::nullopt;  // the rules refuse it
  }
}

std::vector<Choice> all_choices() {
  std::vector<Choice> all{{}};
  for (const Factor& factor : factors()) {
    std::vector<Choice> longer;
    for (const Choice& choice : all)
      for (int i = 0; i < static_cast<int>(factor.choices.size()); ++i) {
        longer.push_back(choice);
        longer.back().push_back(i);
      }
    all = std::move(longer);
  }
  return all;
}

using Pairs = std::set<std::array<int, 4>>;
Pairs pairs_of(const Choice& choice) {
  Pairs pairs;
  for (int i = 0; i < static_cast<int>(choice.size()); ++i)
    for (int j = i + 1; j < static_cast<int>(choice.size()); ++j)
      pairs.insert({i, choice[static_cast<std::size_t>(i)], j, choice[static_cast<std::size_t>(j)]});
  return pairs;
}

/// The candidate that covers most of what is `left`, a hash deciding among equals.
std::size_t best_of(const std::vector<Pairs>& candidates, const Pairs& left,
                    const std::set<std::size_t>& taken) {
  std::size_t best = 0;
  std::pair<std::size_t, std::uint64_t> most{0, 0};
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (taken.contains(i)) continue;
    std::size_t news = 0;
    for (const auto& pair : candidates[i]) news += left.count(pair);
    const std::pair worth{news, stable_hash(std::to_string(i))};
    if (worth >= most) most = worth, best = i;
  }
  return best;
}

/// Layouts that the rules allow: until every pair that any of them has is covered, then others.
std::vector<Layout> covering() {
  std::vector<Layout> layouts;
  std::vector<Pairs> pairs;
  Pairs left;
  for (const Choice& choice : all_choices()) {
    const Layout layout(choice);
    // A hash thins them out: a search over all would find no pair more.
    if (layout.world < 2 || stable_hash(layout.flags + std::to_string(layout.world)) % 8 != 0 ||
        !run_of(layout))
      continue;
    layouts.push_back(layout);
    pairs.push_back(pairs_of(choice));
    left.insert(pairs.back().begin(), pairs.back().end());
  }
  std::vector<Layout> chosen;
  std::set<std::size_t> taken;
  while (taken.size() < layouts.size() && (!left.empty() || chosen.size() < kWanted)) {
    const std::size_t next = best_of(pairs, left, taken);
    taken.insert(next);
    chosen.push_back(layouts[next]);
    for (const auto& pair : pairs[next]) left.erase(pair);
  }
  EXPECT_TRUE(left.empty());
  return chosen;
}

TEST(Covering, OfAllPairsOfCutsAgreesWithOneRank) {
  const config::Run one = test::settings(1, words(kModel));
  const std::vector<Layout> layouts = covering();
  EXPECT_GE(layouts.size(), kWanted);
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(fmt::format("{} ranks: {}", layout.world, layout.flags));
    const config::Run cut = *run_of(layout);
    const Comparison exact = compare_layouts({one}, {cut}, 1, Precision::kFloat64);
    EXPECT_FALSE(exact.first) << exact.first->what << ' ' << exact.first->distance;
    const Comparison fp32 = compare_layouts({one}, {cut}, 3);
    EXPECT_FALSE(fp32.first) << fp32.first->what << ' ' << fp32.first->distance;
  }
}

}  // namespace
}  // namespace colonnade::train
