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

constexpr int kPlaceBits = 6;  // of a place below kShort
constexpr std::uint32_t kMostRanks = 1U << (31 - kPlaceBits);
constexpr std::int32_t kNever = 0x7FFFFFFF;

/// The least of keys in blocks of eight: a loop over those that are there would end where the processor does
/// not expect it. Not by vectors, which would have to wait for the keys that were just written.
std::int32_t least_of(const std::int32_t* keys, std::size_t blocks) {
  std::int32_t even = kNever, odd = kNever;
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
  there_.resize((slots_.size() * 8 + 63) / 64);
  for (const Merge& merge : merges) {
    const std::uint64_t key = key_of(merge.left, merge.right);
    std::size_t slot = key * 0x9E3779B97F4A7C15ULL >> shift_;
    if (merge.rank >= kMostRanks)
      throw DataError(fmt::format("{}: there must be fewer than {} merges; got rank {}; mend the file", where,
                                  kMostRanks, merge.rank));
    for (; slots_[slot].found.rank != kNone; slot = (slot + 1) & (slots_.size() - 1))
      if (slots_[slot].key == key)
        throw DataError(
            fmt::format("{}: a pair must be merged once; got {} and {} for the ids {} and {}; mend the file",
                        where, slots_[slot].found.rank, merge.rank, merge.left, merge.right));
    slots_[slot] = {key, {merge.rank, merge.merged}};
    const std::uint64_t bit = key * 0x9E3779B97F4A7C15ULL >> (shift_ - 3);
    there_[bit / 64] |= std::uint64_t{1} << (bit % 64);
  }
}

[[gnu::always_inline]] inline Merges::Found Merges::look(std::int32_t left, std::int32_t right) const {
  if (slots_.empty()) return {};
  const std::uint64_t key = key_of(left, right);
  const std::uint64_t hash = key * 0x9E3779B97F4A7C15ULL, bit = hash >> (shift_ - 3);
  if ((there_[bit / 64] >> (bit % 64) & 1) == 0) return {};
  std::size_t slot = hash >> shift_;
  for (; slots_[slot].found.rank != kNone; slot = (slot + 1) & (slots_.size() - 1))
    if (slots_[slot].key == key) return slots_[slot].found;
  return {};
}

Merges::Found Merges::find(std::int32_t left, std::int32_t right) const { return look(left, right); }

void Merges::apply(std::vector<std::int32_t>& ids) const {
  if (ids.size() < 2 || slots_.empty()) return;
  if (ids.size() > kShort) return apply_long(ids);
  std::array<Found, kShort> pairs;
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) pairs[i] = find(ids[i], ids[i + 1]);
  ids.resize(apply(ids.data(), pairs.data(), ids.size()));
}

/// Up to kShort ids looking at all ranks is faster than a heap. Every pair has a key, its rank above its
/// place.
std::size_t Merges::apply(std::int32_t* ids, const Found* pairs, std::size_t count) const {
  constexpr std::size_t kBlock = 8;
  std::array<std::int32_t, kShort> keys;  // of the ids at this place and behind it
  std::array<std::int32_t, kShort> merged;
  std::array<std::uint8_t, kShort + 1> next, previous;
  const auto set = [&](std::size_t at, const Found& found) {
    keys[at] = found.rank == kNone ? kNever : static_cast<std::int32_t>(found.rank << kPlaceBits | at);
    merged[at] = found.merged;
  };
  const std::size_t blocks = (count + kBlock - 1) / kBlock;
  std::fill_n(keys.begin() + static_cast<std::ptrdiff_t>((blocks - 1) * kBlock), kBlock, kNever);
  for (std::size_t i = 0; i < count; ++i) {
    next[i] = static_cast<std::uint8_t>(i + 1);
    previous[i + 1] = static_cast<std::uint8_t>(i);
    if (i + 1 < count) set(i, pairs[i]);
  }
  for (;;) {
    const std::int32_t least = least_of(keys.data(), blocks);
    if (least == kNever) break;
    const std::size_t at = least & ((1 << kPlaceBits) - 1), right = next[at], after = next[right];
    ids[at] = merged[at];
    keys[right] = kNever;
    next[at] = static_cast<std::uint8_t>(after);
    previous[after] = static_cast<std::uint8_t>(at);
    set(at, after < count ? look(ids[at], ids[after]) : Found{});
    if (at > 0) set(previous[at], look(ids[previous[at]], ids[at]));
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; i = next[i]) ids[kept++] = ids[i];
  return kept;
}

void Merges::apply_long(std::vector<std::int32_t>& ids) const {
  struct Node {
    std::uint32_t previous, next;  // the place of the neighbour; count: none
    Found found;                   // of this node and the next one
    bool alive = true;
  };
  const auto count = static_cast<std::uint32_t>(ids.size());
  std::vector<Node> nodes(count);
  std::vector<std::uint64_t> entries;  // rank << 32 | place
  const auto place_entry = [](const Found& found, std::uint32_t at) {
    return std::uint64_t{found.rank} << 32 | at;
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    nodes[i] = {i == 0 ? count : i - 1, i + 1, i + 1 < count ? find(ids[i], ids[i + 1]) : Found{}};
    if (nodes[i].found.rank != kNone) entries.push_back(place_entry(nodes[i].found, i));
  }
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> heap({}, std::move(entries));
  const auto refresh = [&](std::uint32_t at) {
    Node& node = nodes[at];
    node.found = node.next < count ? find(ids[at], ids[node.next]) : Found{};
    if (node.found.rank != kNone) heap.push(place_entry(node.found, at));
  };
  while (!heap.empty()) {
    const std::uint64_t top = heap.top();
    heap.pop();
    const auto at = static_cast<std::uint32_t>(top);
    Node& node = nodes[at];
    if (!node.alive || node.found.rank != top >> 32) continue;  // a neighbour was merged since
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
