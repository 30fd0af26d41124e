// See merges.h.
#include "colonnade/data/tokenizers/merges.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <queue>

#include "colonnade/base/error.h"

namespace colonnade::data {
namespace {

constexpr std::size_t kShort = 48;  // up to here looking at all ranks is faster than a heap

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

Merges::Merges(const std::vector<Merge>& merges, const std::string& where) {
  slots_.resize(std::bit_ceil(merges.size() * 2 + 2));
  shift_ = 64 - std::countr_zero(slots_.size());
  there_.resize((slots_.size() * 8 + 63) / 64);
  small_.resize(std::size_t{kSmall} * kSmall);
  for (const Merge& merge : merges) {
    const std::uint64_t key = key_of(merge.left, merge.right);
    std::size_t slot = key * 0x9E3779B97F4A7C15ULL >> shift_;
    for (; slots_[slot].found.rank != kNone; slot = (slot + 1) & (slots_.size() - 1))
      if (slots_[slot].key == key)
        throw DataError(
            fmt::format("{}: a pair must be merged once; got {} and {} for the ids {} and {}; mend the file",
                        where, slots_[slot].found.rank, merge.rank, merge.left, merge.right));
    slots_[slot] = {key, {merge.rank, merge.merged}};
    const std::uint64_t bit = key * 0x9E3779B97F4A7C15ULL >> (shift_ - 3);
    there_[bit / 64] |= std::uint64_t{1} << (bit % 64);
    if (merge.left < kSmall && merge.right < kSmall)
      small_[small_place(merge.left, merge.right)] = slots_[slot].found;
  }
}

Merges::Found Merges::find_large(std::int32_t left, std::int32_t right) const {
  if (slots_.empty()) return {};
  const std::uint64_t key = key_of(left, right);
  const std::uint64_t hash = key * 0x9E3779B97F4A7C15ULL, bit = hash >> (shift_ - 3);
  if ((there_[bit / 64] >> (bit % 64) & 1) == 0) return {};
  std::size_t slot = hash >> shift_;
  for (; slots_[slot].found.rank != kNone; slot = (slot + 1) & (slots_.size() - 1))
    if (slots_[slot].key == key) return slots_[slot].found;
  return {};
}

void Merges::apply(std::vector<std::int32_t>& ids) const {
  if (ids.size() < 2 || slots_.empty()) return;
  if (ids.size() <= kShort) {
    apply_short(ids);
  } else {
    apply_long(ids);
  }
}

/// Every pair has a key, its rank above its place; the least one is found without a branch that the processor
/// would have to guess.
void Merges::apply_short(std::vector<std::int32_t>& ids) const {
  constexpr std::uint64_t kNever = ~std::uint64_t{0};
  std::array<std::uint64_t, kShort> keys;  // of the ids at this place and behind it
  std::array<std::int32_t, kShort> merged;
  std::array<std::uint8_t, kShort + 1> next, previous;
  const std::size_t count = ids.size();
  const auto refresh = [&](std::size_t at) {
    const Found found = next[at] < count ? find(ids[at], ids[next[at]]) : Found{};
    keys[at] = found.rank == kNone ? kNever : std::uint64_t{found.rank} << 8 | at;
    merged[at] = found.merged;
  };
  for (std::size_t i = 0; i < count; ++i) {
    next[i] = static_cast<std::uint8_t>(i + 1);
    previous[i + 1] = static_cast<std::uint8_t>(i);
    refresh(i);
  }
  for (;;) {
    std::uint64_t least = kNever;
    for (std::size_t i = 0; i + 1 < count; ++i) least = std::min(least, keys[i]);
    if (least == kNever) break;
    const std::size_t at = least & 0xFF, right = next[at];
    ids[at] = merged[at];
    keys[right] = kNever;
    next[at] = next[right];
    previous[next[at]] = static_cast<std::uint8_t>(at);
    refresh(at);
    if (at > 0) refresh(previous[at]);
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; i = next[i]) ids[kept++] = ids[i];
  ids.resize(kept);
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

}  // namespace colonnade::data
