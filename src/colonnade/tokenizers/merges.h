// Byte pair encoding on ids: which two ids become one, and in which order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace colonnade::tokenizers {

/// Merges of pairs of ids, the lower rank first, of equal ranks the leftmost.
class Merges {
 public:
  struct Merge {
    std::int32_t left = 0, right = 0;
    std::int32_t merged = -1;
    std::uint32_t rank = 0;
  };
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  Merges() = default;
  /// Throws DataError, with `where` in front, for a pair that is there twice and a rank of 2^25 or more.
  Merges(const std::vector<Merge>& merges, const std::string& where);

  /// The rank (kNone: no merge) and the id that a pair becomes.
  struct Found {
    std::uint32_t rank = kNone;
    std::int32_t merged = -1;
  };
  [[nodiscard]] Found find(std::int32_t left, std::int32_t right) const;

  /// Whether holds(left, right) is true of all pairs.
  template <typename Holds>
  [[nodiscard]] bool all(Holds&& holds) const {
    return std::all_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
      return slot.found.rank == kNone || holds(static_cast<std::int32_t>(slot.key >> 32),
                                               static_cast<std::int32_t>(slot.key & 0xFFFFFFFF));
    });
  }

  /// Merges until no pair is left. Takes n log n steps.
  void apply(std::vector<std::int32_t>& ids) const;
  /// The same of `count` ids, 2 to kShort; `pairs`: of each id and the next one what find() gives. Returns
  /// how many ids are left.
  static constexpr std::size_t kShort = 48;
  [[nodiscard]] std::size_t apply(std::int32_t* ids, const Found* pairs, std::size_t count) const;

 private:
  struct Slot {
    std::uint64_t key = ~std::uint64_t{0};
    Found found;
  };
  void apply_long(std::vector<std::int32_t>& ids) const;

  [[nodiscard]] inline Found look(std::int32_t left, std::int32_t right) const;

  std::vector<Slot> slots_;
  int shift_ = 64;
  /// Bits, eight for each slot, that are set where a pair's hash leads: most pairs are not merged, and a
  /// clear bit says so without a look into the slots, which are too many for the nearest caches.
  std::vector<std::uint64_t> there_;
};

}  // namespace colonnade::tokenizers
