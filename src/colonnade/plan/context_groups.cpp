// See context_groups.h.
#include "colonnade/plan/context_groups.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "colonnade/base/error.h"

namespace colonnade::plan {
namespace {

/// The smallest power of two of ranks that hold `length` tokens.
int holding(std::int64_t length, std::int64_t tokens_per_rank) {
  int ranks = 1;
  while (ranks * tokens_per_rank < length) ranks *= 2;
  return ranks;
}

void check(const std::vector<std::int64_t>& lengths, int ranks, std::int64_t tokens_per_rank) {
  COL_CHECK(ranks > 0 && std::has_single_bit(static_cast<unsigned>(ranks)) && tokens_per_rank > 0,
            "context groups: ranks must be a power of two that hold tokens; got {} with {} tokens each",
            ranks, tokens_per_rank);
  for (const std::int64_t length : lengths)
    COL_CHECK(length > 0 && length <= ranks * tokens_per_rank,
              "context groups: all ranks together must hold each sequence; got {} tokens for {} x {}", length,
              ranks, tokens_per_rank);
}

/// Puts a sequence on its ranks: all begin when the last of them is free.
void put(ContextGroups& groups, const SequenceShare& share, double pairs) {
  const auto first = groups.work.begin() + share.first, last = first + share.ranks;
  const double done = *std::max_element(first, last) + pairs / share.ranks;
  std::fill(first, last, done);
  groups.shares.push_back(share);
}

}  // namespace

double ContextGroups::longest() const { return work.empty() ? 0 : *std::ranges::max_element(work); }

double attention_pairs(std::int64_t length) {
  return static_cast<double>(length) * static_cast<double>(length + 1) / 2;
}

ContextGroups context_groups(const std::vector<std::int64_t>& lengths, int ranks,
                             std::int64_t tokens_per_rank) {
  check(lengths, ranks, tokens_per_rank);
  double all = 0;
  for (const std::int64_t length : lengths) all += attention_pairs(length);
  const auto size = [&](std::size_t i) {
    int group = holding(lengths[i], tokens_per_rank);
    while (group < ranks && attention_pairs(lengths[i]) / group > all / ranks) group *= 2;
    return group;
  };
  std::vector<SequenceShare> order;
  for (std::size_t i = 0; i < lengths.size(); ++i) order.push_back({.sequence = i, .ranks = size(i)});
  std::ranges::stable_sort(order, [&](const SequenceShare& a, const SequenceShare& b) {
    return a.ranks != b.ranks ? a.ranks > b.ranks : lengths[a.sequence] > lengths[b.sequence];
  });
  ContextGroups groups{.shares = {}, .work = std::vector<double>(static_cast<std::size_t>(ranks), 0)};
  for (SequenceShare& share : order) {
    const auto free = [&](int first) {
      const auto begin = groups.work.begin() + first;
      return *std::max_element(begin, begin + share.ranks);
    };
    for (int first = 0; first < ranks; first += share.ranks)
      if (free(first) < free(share.first)) share.first = first;
    put(groups, share, attention_pairs(lengths[share.sequence]));
  }
  return groups;
}

ContextGroups equal_context_groups(const std::vector<std::int64_t>& lengths, int ranks,
                                   std::int64_t tokens_per_rank) {
  check(lengths, ranks, tokens_per_rank);
  ContextGroups groups{.shares = {}, .work = std::vector<double>(static_cast<std::size_t>(ranks), 0)};
  if (lengths.empty()) return groups;
  const int size = holding(*std::ranges::max_element(lengths), tokens_per_rank);
  int first = 0;
  std::int64_t packed = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (packed + lengths[i] > size * tokens_per_rank) {
      first = (first + size) % ranks;
      packed = 0;
    }
    packed += lengths[i];
    put(groups, {.sequence = i, .first = first, .ranks = size}, attention_pairs(lengths[i]));
  }
  return groups;
}

}  // namespace colonnade::plan
