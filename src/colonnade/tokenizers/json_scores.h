// Scores of a Unigram tokenizer.json, bitwise equal to those that Hugging Face tokenizers reads.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace colonnade::tokenizers {

/// The value of a JSON number as serde_json parses it without the feature float_roundtrip, which tokenizers
/// does not enable. The significand, as many leading digits as an unsigned 64-bit integer holds, is rounded
/// to float64; multiplying or dividing it by a power of ten rounds again. With more than 15 digits the result
/// may be one ulp off the nearest float64, enough to decide between segmentations that tie. Infinite if the
/// number is out of range. `number` must be valid JSON.
[[nodiscard]] double serde_json_number(std::string_view number);

/// The scores of model.vocab, [["token", score], ...], in the text of a tokenizer.json. Throws DataError that
/// starts with `where` if the text is not JSON or has no such list.
[[nodiscard]] std::vector<double> unigram_scores(const std::string& text, const std::string& where);

}  // namespace colonnade::tokenizers
