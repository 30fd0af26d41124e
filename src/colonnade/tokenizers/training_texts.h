// The stream of texts that a tokenizer is trained on.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

namespace colonnade::tokenizers {

/// Returns the next text, valid until the next call; nullopt at the end.
using NextText = std::function<std::optional<std::string_view>()>;

/// Error message for a training without text.
constexpr const char* kNoTrainingText =
    "tokenizer must get text to train on; got none; check --input and, for JSON, --json-key";

}  // namespace colonnade::tokenizers
