// See gpt_sample.h.
#include "colonnade/data/gpt_sample.h"

#include "colonnade/base/error.h"

namespace colonnade::data {

void fill_sample(std::span<const std::int64_t> text, const SampleRules& rules, SampleView out) {
  const std::size_t length = out.tokens.size();
  COL_CHECK(text.size() == length || text.size() == length + 1,
            "fill_sample: text must hold {} or {} tokens; got {}", length, length + 1, text.size());
  std::int64_t document_start = 0;
  for (std::size_t i = 0; i < length; ++i) {
    const std::int64_t token = text[i];
    const std::int64_t label = i + 1 < text.size() ? text[i + 1] : rules.pad;
    const bool end = token == rules.eod;
    out.tokens[i] = token == rules.pad ? 0 : token;
    out.labels[i] = label == rules.pad ? 0 : label;
    out.loss_mask[i] = label == rules.pad || (rules.eod_mask_loss && end) ? 0.0F : 1.0F;
    out.position_ids[i] = static_cast<std::int64_t>(i) - document_start;
    if (rules.reset_position_ids && end) document_start = static_cast<std::int64_t>(i) + 1;
  }
}

void fill_attention_mask(std::span<const std::int64_t> tokens, const SampleRules& rules,
                         std::span<std::uint8_t> mask) {
  const std::size_t length = tokens.size();
  COL_CHECK(mask.size() == length * length, "fill_attention_mask: mask must hold {} x {} values; got {}",
            length, length, mask.size());
  std::size_t first_visible = 0;
  for (std::size_t row = 0; row < length; ++row) {
    for (std::size_t column = 0; column < length; ++column)
      mask[row * length + column] = column < first_visible || column > row ? 1 : 0;
    if (rules.reset_attention_mask && tokens[row] == rules.eod) first_visible = row + 1;
  }
}

}  // namespace colonnade::data
