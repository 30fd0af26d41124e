// Which ids the text of data may have.
#pragma once

#include <cstdint>

namespace colonnade::data {

/// What ids the text that samples are made of may have: 0 to end - 1. 0: that is not known.
struct TextIds {
  std::int64_t end = 0;
  std::int64_t vocab_size = 0;  ///< more than `end` where the ids between them are no text's
};

}  // namespace colonnade::data
