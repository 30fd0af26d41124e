// Byte pair encoding on ids: which two ids become one, and in which order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace colonnade::data {

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
  /// Throws DataError, with `where` in front, for a pair that is there twice.
  Merges(const std::vector<Merge>& merges, const std::string& where);

  /// The rank (kNone: no merge) and the id that a pair becomes.
  struct Found {
    std::uint32_t rank = kNone;
    std::int32_t merged = -1;
  };
  [[nodiscard]] Found find(std::int32_t left, std::int32_t right) const {
    if (static_cast<std::uint32_t>(left) < kSmall && static_cast<std::uint32_t>(right) < kSmall)
      return small_.empty() ? Found{} : small_[small_place(left, right)];
    return find_large(left, right);
  }

  /// Merges until no pair is left. Takes n log n steps.
  void apply(std::vector<std::int32_t>& ids) const;

 private:
  [[nodiscard]] static std::size_t small_place(std::int32_t left, std::int32_t right) {
    return static_cast<std::size_t>(left) * kSmall + static_cast<std::size_t>(right);
  }

  struct Slot {
    std::uint64_t key = ~std::uint64_t{0};
    Found found;
  };
  [[nodiscard]] Found find_large(std::int32_t left, std::int32_t right) const;
  void apply_short(std::vector<std::int32_t>& ids) const;
  void apply_long(std::vector<std::int32_t>& ids) const;

  std::vector<Slot> slots_;
  int shift_ = 64;
  /// Bits, eight for each slot, that are set where a pair's hash leads: most pairs are not merged, and a
  /// clear bit says so without a look into the slots, which are too many for the nearest caches.
  std::vector<std::uint64_t> there_;
  std::vector<Found> small_;  ///< pairs of ids below kSmall, most of which are single bytes or characters
  static constexpr std::int32_t kSmall = 288;
};

}  // namespace colonnade::data
