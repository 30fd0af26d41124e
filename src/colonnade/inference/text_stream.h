// Incremental detokenization: text pieces that later ids do not change.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::inference {

/// Text after a prompt. Withheld until final: tokens with part of a character, and at the end of the text a
/// space or apostrophe followed by up to five bytes, which tokenizers that clean up spaces may still remove
/// (" ." becomes
/// ".", " n't" becomes "n't").
class TextStream {
 public:
  /// Keeps a reference to `tokenizer`.
  TextStream(const tokenizers::Tokenizer& tokenizer, const std::vector<std::int32_t>& prompt);

  /// Text that this id makes final; often empty.
  [[nodiscard]] std::string add(std::int32_t id);
  /// The remaining text.
  [[nodiscard]] std::string finish();

 private:
  /// The part of `text` up to `end` that was not emitted yet.
  std::string emit(const std::string& text, std::size_t end);

  const tokenizers::Tokenizer& tokenizer_;
  std::vector<std::int32_t> ids_;
  std::string emitted_;
};

}  // namespace colonnade::inference
