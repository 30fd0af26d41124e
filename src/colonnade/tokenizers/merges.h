// BPE merges on token ids.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace colonnade::tokenizers {

/// Merges of id pairs, applied by ascending rank; for equal ranks, from left to right.
class Merges {
 public:
  struct Merge {
    std::int32_t left = 0, right = 0;
    std::int32_t merged = -1;
    std::uint32_t rank = 0;
  };
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  Merges() = default;
  /// Throws DataError that starts with `where` for a duplicate pair or a rank of 2^25 or more.
  Merges(const std::vector<Merge>& merges, const std::string& where);

  /// The rank of a pair's merge (kNone if it has none) and the merged id.
  struct Lookup {
    std::uint32_t rank = kNone;
    std::int32_t merged = -1;
  };
  [[nodiscard]] Lookup find(std::int32_t left, std::int32_t right) const;

  /// Whether holds(left, right) is true for all pairs.
  template <typename Holds>
  [[nodiscard]] bool all_of(Holds&& holds) const {
    return std::all_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
      return slot.found.rank == kNone || holds(static_cast<std::int32_t>(slot.key >> 32),
                                               static_cast<std::int32_t>(slot.key & 0xFFFFFFFF));
    });
  }

  /// Merges until no pair has a merge, in O(n log n).
  void apply(std::vector<std::int32_t>& ids) const;
  /// Merges `count` ids, 2 to kShort, in place; `pairs[i]` is find() of ids i and i + 1. Returns the number
  /// of ids left.
  static constexpr std::size_t kShort = 48;
  [[nodiscard]] std::size_t apply(std::int32_t* ids, const Lookup* pairs, std::size_t count) const;

 private:
  struct Slot {
    std::uint64_t key = ~std::uint64_t{0};
    Lookup found;
  };
  void apply_long(std::vector<std::int32_t>& ids) const;

  [[nodiscard]] inline Lookup lookup(std::int32_t left, std::int32_t right) const;

  std::vector<Slot> slots_;
  int shift_ = 64;
  /// Bloom filter with eight bits per slot and one hash: most looked-up pairs have no merge, and a clear bit
  /// avoids reading the slots, which do not fit the nearest caches.
  std::vector<std::uint64_t> filter_;
};

}  // namespace colonnade::tokenizers
