// Texts that a tokenizer is trained on, one after the other.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

namespace colonnade::tokenizers {

/// The next text, which lasts until the next call; nothing at the end.
using NextText = std::function<std::optional<std::string_view>()>;

/// What is wrong where nothing is left to train on.
constexpr const char* kNoTrainingText =
    "tokenizer must get text to train on; got none; check --input and, of JSON, --json-key";

}  // namespace colonnade::tokenizers
