// See gpt_sample.h.
#include "colonnade/data/gpt_sample.h"

#include <algorithm>
#include <numeric>

#include "colonnade/base/error.h"

namespace colonnade::data {
namespace {

/// Tokens, labels and loss mask as far as the text goes, a pass for each: the compiler makes vectors of them.
void fill_tokens(std::span<const std::int64_t> text, std::int64_t pad, SampleView out) {
  const std::size_t length = out.tokens.size(), labels = text.size() - 1;
  std::uint64_t all = 0;
  for (const std::int64_t id : text) all |= static_cast<std::uint64_t>(id);
  if (pad < 0 && all >> 63 == 0) {  // no pads
    std::copy_n(text.begin(), length, out.tokens.begin());
    std::copy_n(text.begin() + 1, labels, out.labels.begin());
    std::fill_n(out.loss_mask.begin(), labels, 1.0F);
    return;
  }
  const auto token = [pad](std::int64_t id) { return id == pad ? 0 : id; };
  for (std::size_t i = 0; i < length; ++i) out.tokens[i] = token(text[i]);
  for (std::size_t i = 0; i < labels; ++i) out.labels[i] = token(text[i + 1]);
  for (std::size_t i = 0; i < labels; ++i) out.loss_mask[i] = text[i + 1] == pad ? 0.0F : 1.0F;
}

}  // namespace

void fill_sample(std::span<const std::int64_t> text, const SampleRules& rules, SampleView out) {
  const std::size_t length = out.tokens.size();
  COL_CHECK(length > 0 && (text.size() == length || text.size() == length + 1),
            "fill_sample: text must hold {} or {} tokens, at least one; got {}", length, length + 1,
            text.size());
  const std::size_t labels = text.size() - 1;
  fill_tokens(text, rules.pad, out);
  if (labels < length) {
    out.labels[labels] = 0;
    out.loss_mask[labels] = 0;
  }
  std::iota(out.position_ids.begin(), out.position_ids.end(), std::int64_t{0});
  if (!rules.eod_mask_loss && !rules.reset_position_ids) return;
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < length; ++i) {
    const bool end = text[i] == rules.eod;
    if (end && rules.eod_mask_loss) out.loss_mask[i] = 0;
    if (rules.reset_position_ids) out.position_ids[i] -= begin;
    if (end) begin = static_cast<std::int64_t>(i) + 1;
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
