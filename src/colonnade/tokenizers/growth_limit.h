// Limit on how much a text may grow in a tokenizer.
#pragma once

#include <cstddef>

#include "colonnade/base/error.h"

namespace colonnade::tokenizers {

/// No normal form grows a text this much: a file whose components do is wrong or hostile.
class GrowthLimit {
 public:
  /// `size`: bytes of the input. `what` grows, because of `parts` of the file: both are for the message.
  GrowthLimit(std::size_t size, const char* what, const char* parts)
      : max_bytes_(kMaxGrowth * size + kSlack), what_(what), parts_(parts) {}

  /// check() for the sum of all sizes so far.
  void add(std::size_t size) { check(added_ += size); }
  /// Throws DataError for more than 64 times the bytes of the input plus 1 MiB.
  void check(std::size_t size) const {
    if (size > max_bytes_)
      throw DataError(fmt::format(
          "tokenizer: {} must not grow to more than {} times its bytes plus 1 MiB; got more than {} bytes; check the {}",
          what_, kMaxGrowth, max_bytes_, parts_));
  }

 private:
  static constexpr std::size_t kMaxGrowth = 64, kSlack = 1 << 20;
  std::size_t max_bytes_, added_ = 0;
  const char* what_;
  const char* parts_;
};

}  // namespace colonnade::tokenizers
