// Range of the token ids in text.
#pragma once

#include <cstdint>

namespace colonnade::data {

/// Ids that occur in text are 0 to end - 1; an `end` of 0 means unknown.
struct TextIds {
  std::int64_t end = 0;
  std::int64_t vocab_size = 0;  ///< exceeds `end` if the ids between are reserved for special tokens
};

}  // namespace colonnade::data
