// Normalization of flag spellings. Private to config.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace colonnade::config {

/// Maps "--num-layers" and "num_layers" to "num_layers".
inline std::string folded(std::string_view spelling) {
  while (spelling.starts_with('-')) spelling.remove_prefix(1);
  std::string text(spelling);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

}  // namespace colonnade::config
