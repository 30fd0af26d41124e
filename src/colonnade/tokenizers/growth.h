// How much a text may grow on its way through a tokenizer.
#pragma once

#include <cstddef>

#include "colonnade/base/error.h"

namespace colonnade::tokenizers {

/// More than any normal form makes of a text: a file whose parts make more of it is wrong or hostile.
class GrowthLimit {
 public:
  /// `what` grows, by `parts` of the file.
  GrowthLimit(std::size_t size, const char* what, const char* parts)
      : most_(kMostGrowth * size + kMostSmall), what_(what), parts_(parts) {}

  /// check() of all that was added so far.
  void add(std::size_t size) { check(added_ += size); }
  /// Throws DataError for more than 64 times the bytes at the begin and 1 MiB.
  void check(std::size_t size) const {
    if (size > most_)
      throw DataError(fmt::format(
          "tokenizer: {} must not grow to more than {} times its bytes and 1 MiB; got more than {} bytes; check the {}",
          what_, kMostGrowth, most_, parts_));
  }

 private:
  static constexpr std::size_t kMostGrowth = 64, kMostSmall = 1 << 20;
  std::size_t most_, added_ = 0;
  const char* what_;
  const char* parts_;
};

}  // namespace colonnade::tokenizers
