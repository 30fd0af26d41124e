// The scores of a Unigram tokenizer.json, to the bit as Hugging Face tokenizers reads them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace colonnade::tokenizers {

/// The value of a JSON number as serde_json gives it without its feature float_roundtrip, which tokenizers is
/// built without: significand, as many of the leading digits as an unsigned 64-bit integer holds, rounded to
/// float64; then times, or divided by, a power of ten, rounded again. With more than 15 digits it may be a
/// unit in the last place away from the nearest float64, enough to decide between cuts that tie. Infinite
/// when the number is out of range. `number` must be valid JSON.
[[nodiscard]] double number_as_read(std::string_view number);

/// The numbers of model.vocab, [["token", number], ...], of the text of a tokenizer.json, in its order.
/// Throws DataError, with `where` in front, when the text is not JSON that has them.
[[nodiscard]] std::vector<double> unigram_scores(const std::string& text, const std::string& where);

}  // namespace colonnade::tokenizers
