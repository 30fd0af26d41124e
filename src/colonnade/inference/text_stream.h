// Text of ids as they come, in pieces that no later id changes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::inference {

/// What follows a prompt. Kept back until it is settled: a token that holds a part of a character, and at the
/// end of the text a space or an apostrophe with up to five bytes behind it, which tokenizers that clean up
/// spaces may still take out (" ." becomes ".", " n't" becomes "n't").
class TextStream {
 public:
  /// `tokenizer` must stay.
  TextStream(const tokenizers::Tokenizer& tokenizer, const std::vector<std::int32_t>& prompt);

  /// The text that is settled with this id; often empty.
  [[nodiscard]] std::string add(std::int32_t id);
  /// What was kept back.
  [[nodiscard]] std::string finish();

 private:
  /// What `text` has behind what was given, up to `end`.
  std::string give(const std::string& text, std::size_t end);

  const tokenizers::Tokenizer& tokenizer_;
  std::vector<std::int32_t> ids_;
  std::string given_;
};

}  // namespace colonnade::inference
