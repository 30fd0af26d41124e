// Training texts from memory.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "colonnade/tokenizers/training_texts.h"

namespace colonnade::tokenizers {

/// A stream of these texts.
inline NextText stream_of(std::vector<std::string> texts) {
  return [texts = std::move(texts), at = std::size_t{0}]() mutable -> std::optional<std::string_view> {
    if (at == texts.size()) return std::nullopt;
    return texts[at++];
  };
}

}  // namespace colonnade::tokenizers
