// See merges.h.
#include "colonnade/tokenizers/merges.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <queue>

#include "colonnade/base/error.h"

namespace colonnade::tokenizers {
namespace {

constexpr int kPositionBits = 6;  // for positions below kShort
constexpr std::uint32_t kMaxRanks = 1U << (31 - kPositionBits);
constexpr std::int32_t kNoMerge = 0x7FFFFFFF;

/// The minimum of keys in blocks of eight: the trip count of an exact loop would be mispredicted. Scalar,
/// because vector loads would stall on the keys just written.
std::int32_t min_key(const std::int32_t* keys, std::size_t blocks) {
  std::int32_t even = kNoMerge, odd = kNoMerge;
  for (const std::int32_t* end = keys + 8 * blocks; keys < end; keys += 8) {
    even = std::min(even, std::min(std::min(keys[0], keys[2]), std::min(keys[4], keys[6])));
    odd = std::min(odd, std::min(std::min(keys[1], keys[3]), std::min(keys[5], keys[7])));
  }
  return std::min(even, odd);
}

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

Merges::Merges(const std::vector<Merge>& merges, const std::string& where) {
  slots_.resize(std::bit_ceil(merges.size() * 2 + 2));
  shift_ = 64 - std::countr_zero(slots_.size());
  filter_.resize((slots_.size() * 8 + 63) / 64);
  for (const Merge& merge : merges) {
    const std::uint64_t key = key_of(merge.left, merge.right);
    std::size_t slot = key * 0x9E3779B97F4A7C15ULL >> shift_;
    if (merge.rank >= kMaxRanks)
      throw DataError(fmt::format("{} must have fewer than {} merges; got rank {}; fix the file", where,
                                  kMaxRanks, merge.rank));
    for (; slots_[slot].found.rank != kNone; slot = (slot + 1) & (slots_.size() - 1))
      if (slots_[slot].key == key)
        throw DataError(fmt::format(
            "{}: a pair must be merged once; got ranks {} and {} for the ids {} and {}; fix the file", where,
            slots_[slot].found.rank, merge.rank, merge.left, merge.right));
    slots_[slot] = {key, {merge.rank, merge.merged}};
    const std::uint64_t bit = key * 0x9E3779B97F4A7C15ULL >> (shift_ - 3);
    filter_[bit / 64] |= std::uint64_t{1} << (bit % 64);
  }
}

[[gnu::always_inline]] inline Merges::Lookup Merges::lookup(std::int32_t left, std::int32_t right) const {
  if (slots_.empty()) return {};
  const std::uint64_t key = key_of(left, right);
  const std::uint64_t hash = key * 0x9E3779B97F4A7C15ULL, bit = hash >> (shift_ - 3);
  if ((filter_[bit / 64] >> (bit % 64) & 1) == 0) return {};
  std::size_t slot = hash >> shift_;
  for (; slots_[slot].found.rank != kNone; slot = (slot + 1) & (slots_.size() - 1))
    if (slots_[slot].key == key) return slots_[slot].found;
  return {};
}

Merges::Lookup Merges::find(std::int32_t left, std::int32_t right) const { return lookup(left, right); }

void Merges::apply(std::vector<std::int32_t>& ids) const {
  if (ids.size() < 2 || slots_.empty()) return;
  if (ids.size() > kShort) return apply_long(ids);
  std::array<Lookup, kShort> pairs;
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) pairs[i] = find(ids[i], ids[i + 1]);
  ids.resize(apply(ids.data(), pairs.data(), ids.size()));
}

/// Scanning all ranks is faster than a heap for up to kShort ids. The key of a pair is its rank, with its
/// position in the low bits.
std::size_t Merges::apply(std::int32_t* ids, const Lookup* pairs, std::size_t count) const {
  constexpr std::size_t kBlock = 8;
  std::array<std::int32_t, kShort> keys;  // of the pair that starts at this position
  std::array<std::int32_t, kShort> merged;
  std::array<std::uint8_t, kShort + 1> next, previous;
  const auto set = [&](std::size_t at, const Lookup& found) {
    keys[at] = found.rank == kNone ? kNoMerge : static_cast<std::int32_t>(found.rank << kPositionBits | at);
    merged[at] = found.merged;
  };
  const std::size_t blocks = (count + kBlock - 1) / kBlock;
  std::fill_n(keys.begin() + static_cast<std::ptrdiff_t>((blocks - 1) * kBlock), kBlock, kNoMerge);
  for (std::size_t i = 0; i < count; ++i) {
    next[i] = static_cast<std::uint8_t>(i + 1);
    previous[i + 1] = static_cast<std::uint8_t>(i);
    if (i + 1 < count) set(i, pairs[i]);
  }
  for (;;) {
    const std::int32_t least = min_key(keys.data(), blocks);
    if (least == kNoMerge) break;
    const std::size_t at = least & ((1 << kPositionBits) - 1), right = next[at], after = next[right];
    ids[at] = merged[at];
    keys[right] = kNoMerge;
    next[at] = static_cast<std::uint8_t>(after);
    previous[after] = static_cast<std::uint8_t>(at);
    set(at, after < count ? lookup(ids[at], ids[after]) : Lookup{});
    if (at > 0) set(previous[at], lookup(ids[previous[at]], ids[at]));
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; i = next[i]) ids[kept++] = ids[i];
  return kept;
}

void Merges::apply_long(std::vector<std::int32_t>& ids) const {
  struct Node {
    std::uint32_t previous, next;  // positions of the neighbours; count if there is none
    Lookup found;                  // merge of this node and the next one
    bool alive = true;
  };
  const auto count = static_cast<std::uint32_t>(ids.size());
  std::vector<Node> nodes(count);
  std::vector<std::uint64_t> entries;  // rank << 32 | position
  const auto entry_of = [](const Lookup& found, std::uint32_t at) {
    return std::uint64_t{found.rank} << 32 | at;
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    nodes[i] = {i == 0 ? count : i - 1, i + 1, i + 1 < count ? find(ids[i], ids[i + 1]) : Lookup{}};
    if (nodes[i].found.rank != kNone) entries.push_back(entry_of(nodes[i].found, i));
  }
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> heap({}, std::move(entries));
  const auto refresh = [&](std::uint32_t at) {
    Node& node = nodes[at];
    node.found = node.next < count ? find(ids[at], ids[node.next]) : Lookup{};
    if (node.found.rank != kNone) heap.push(entry_of(node.found, at));
  };
  while (!heap.empty()) {
    const std::uint64_t top = heap.top();
    heap.pop();
    const auto at = static_cast<std::uint32_t>(top);
    Node& node = nodes[at];
    if (!node.alive || node.found.rank != top >> 32) continue;  // stale: a neighbour was merged meanwhile
    ids[at] = node.found.merged;
    Node& right = nodes[node.next];
    right.alive = false;
    node.next = right.next;
    if (node.next < count) nodes[node.next].previous = at;
    refresh(at);
    if (node.previous < count) refresh(node.previous);
  }
  std::size_t kept = 0;
  for (std::uint32_t i = 0; i < count; i = nodes[i].next) ids[kept++] = ids[i];
  ids.resize(kept);
}

}  // namespace colonnade::tokenizers
