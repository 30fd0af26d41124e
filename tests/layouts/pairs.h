// Pairwise covering: few combinations, one choice per factor, that contain every pair of choices of two
// factors.
#pragma once

#include <fmt/format.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "colonnade/base/philox.h"

namespace colonnade::test {

using Choice = std::vector<int>;  ///< of each factor, by number

/// Choice `a` of factor `i` and choice `b` of factor `j`; i < j.
struct Pair {
  int i, a, j, b;
  auto operator<=>(const Pair&) const = default;
};
using Pairs = std::set<Pair>;

/// The search space.
struct Space {
  std::vector<int> sizes;                     ///< choices of each factor
  std::function<bool(const Pair&)> excluded;  ///< the two are excluded
  std::function<bool(const Choice&)> fits;    ///< checked early, with -1 where nothing is chosen yet
  std::function<double(const Choice&)> cost;  ///< positive; the cheapest of equal coverage is preferred
  std::function<bool(const Choice&)> valid;   ///< checked last: whether a full combination is valid
};

inline Pairs all_pairs(const std::vector<int>& sizes) {
  Pairs pairs;
  const int n = static_cast<int>(sizes.size());
  for (int i = 0; i < n; ++i)
    for (int j = i + 1; j < n; ++j)
      for (int a = 0; a < sizes[static_cast<std::size_t>(i)]; ++a)
        for (int b = 0; b < sizes[static_cast<std::size_t>(j)]; ++b) pairs.insert({i, a, j, b});
  return pairs;
}

inline Pairs pairs_of(const Choice& choice) {
  Pairs pairs;
  const int n = static_cast<int>(choice.size());
  for (int i = 0; i < n; ++i)
    for (int j = i + 1; j < n; ++j)
      pairs.insert({i, choice[static_cast<std::size_t>(i)], j, choice[static_cast<std::size_t>(j)]});
  return pairs;
}

/// Draws full combinations around a pair; the same ones on every machine.
class Draw {
 public:
  explicit Draw(const Space& space) : space_(space) {}

  /// A combination with `pair`, the other choices drawn without exclusions (except of the pair itself); none
  /// when the draw reaches a dead end. A factor's choice that covers most of `left` is preferred, with a
  /// random one among equals.
  std::optional<Choice> around(const Pair& pair, const Pairs& left) {
    Choice choice(space_.sizes.size(), -1);
    at(choice, pair.i) = pair.a;
    at(choice, pair.j) = pair.b;
    std::vector<int> open;
    for (int f = 0; f < static_cast<int>(choice.size()); ++f)
      if (f != pair.i && f != pair.j) open.push_back(f);
    while (!open.empty()) {
      const auto next = open.begin() + static_cast<std::ptrdiff_t>(below(open.size()));
      if (!extend(choice, *next, left)) return std::nullopt;
      open.erase(next);
    }
    return choice;
  }

 private:
  static int& at(Choice& choice, int factor) { return choice[static_cast<std::size_t>(factor)]; }
  std::size_t below(std::size_t n) { return Philox{1}(drawn_++)[0] % n; }

  bool extend(Choice& choice, int factor, const Pairs& left) {
    std::vector<int> best;
    std::size_t most = 0;
    for (int c = 0; c < space_.sizes[static_cast<std::size_t>(factor)]; ++c) {
      std::size_t news = 0;
      bool excluded = false;
      for (int f = 0; f < static_cast<int>(choice.size()) && !excluded; ++f) {
        if (at(choice, f) < 0) continue;
        const Pair pair = f < factor ? Pair{f, at(choice, f), factor, c} : Pair{factor, c, f, at(choice, f)};
        excluded = space_.excluded(pair);
        news += left.count(pair);
      }
      if (excluded) continue;
      at(choice, factor) = c;
      const bool fits = space_.fits(choice);
      at(choice, factor) = -1;
      if (!fits) continue;
      if (best.empty() || news > most) best.clear(), most = news;
      if (news == most) best.push_back(c);
    }
    if (best.empty()) return false;
    at(choice, factor) = best[below(best.size())];
    return true;
  }

  const Space& space_;
  std::uint64_t drawn_ = 0;
};

/// The valid combination around `pair` that covers most of `left` for its cost; when there is none, one of as
/// many draws without regard to `left`, or none.
inline std::optional<Choice> best_around(const Space& space, Draw& draw, const Pair& pair,
                                         const Pairs& left) {
  constexpr int kTries = 60;
  for (const Pairs& wanted : {left, Pairs{}}) {
    std::vector<std::pair<double, Choice>> found;
    for (int i = 0; i < kTries; ++i)
      if (const auto choice = draw.around(pair, wanted)) {
        std::size_t news = 1;
        for (const Pair& one : pairs_of(*choice)) news += left.count(one);
        found.emplace_back(static_cast<double>(news) / space.cost(*choice), *choice);
      }
    std::ranges::stable_sort(found, std::greater<>{}, [](const auto& one) { return one.first; });
    for (const auto& [worth, choice] : found)
      if (space.valid(choice)) return choice;
  }
  return std::nullopt;
}

struct Covering {
  std::vector<Choice> choices;
  Pairs missed;  ///< not excluded, but without a valid combination
};

/// Combinations that cover every pair that is not excluded, then more until there are `least`.
inline Covering cover(const Space& space, std::size_t least) {
  Covering covering;
  Pairs left;
  for (const Pair& pair : all_pairs(space.sizes))
    if (!space.excluded(pair)) left.insert(pair);
  const std::vector<Pair> every(left.begin(), left.end());
  Draw draw(space);
  std::set<Choice> taken;
  const auto take = [&](const Choice& choice) {
    if (taken.insert(choice).second) covering.choices.push_back(choice);
    for (const Pair& pair : pairs_of(choice)) left.erase(pair);
  };
  while (!left.empty()) {
    const Pair pair = *left.begin();
    if (const auto choice = best_around(space, draw, pair, left))
      take(*choice);
    else
      covering.missed.insert(pair), left.erase(pair);
  }
  for (std::size_t i = 0; taken.size() < least; i = (i + 37) % every.size())
    if (const auto choice = best_around(space, draw, every[i], left)) take(*choice);
  return covering;
}

}  // namespace colonnade::test
