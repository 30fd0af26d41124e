// See gpt_sample.h.
#include "colonnade/data/samples/gpt/gpt_sample.h"

#include "colonnade/base/error.h"
#include "colonnade/kernels/cpu/vector.h"

namespace colonnade::data {
namespace {

/// Vectorized, unlike std::ranges::find.
COL_CLONES bool holds(std::span<const std::int64_t> text, std::int64_t id) {
  std::int64_t found = 0;
  for (const std::int64_t each : text) found += each == id ? 1 : 0;
  return found > 0;
}

COL_CLONES void copy_without_pads(std::span<const std::int64_t> from, std::int64_t pad,
                                  std::span<std::int64_t> to) {
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = from[i] == pad ? 0 : from[i];
}

COL_CLONES void fill_loss_mask(std::span<const std::int64_t> text, const SampleRules& rules,
                               std::span<float> mask) {
  if (mask.empty()) return;
  const std::size_t labels = text.size() - 1;
  for (std::size_t i = 0; i < labels; ++i) mask[i] = text[i + 1] == rules.pad ? 0.0F : 1.0F;
  if (labels < mask.size()) mask[labels] = 0;
  if (!rules.eod_mask_loss) return;
  for (std::size_t i = 0; i < mask.size(); ++i)
    if (text[i] == rules.eod) mask[i] = 0;
}

void fill_positions(std::span<const std::int64_t> text, const SampleRules& rules,
                    std::span<std::int64_t> positions) {
  std::size_t begin = 0;
  for (std::size_t i = 0; i < positions.size(); ++i) {
    positions[i] = static_cast<std::int64_t>(i - begin);
    if (rules.reset_position_ids && text[i] == rules.eod) begin = i + 1;
  }
}

}  // namespace

void fill_sample(std::span<const std::int64_t> text, const SampleRules& rules, SampleView out) {
  const std::size_t length = out.tokens.size();
  COL_CHECK(length > 0 && (text.size() == length || text.size() == length + 1),
            "fill_sample: text must hold {} or {} tokens, at least one; got {}", length, length + 1,
            text.size());
  copy_without_pads(text.subspan(1), rules.pad, out.labels);
  if (text.size() == length) out.labels.back() = 0;
  fill_loss_mask(text, rules, out.loss_mask);
  fill_positions(text, rules, out.position_ids);
  copy_without_pads(text.first(length), rules.pad, out.tokens);  // last, since it may overwrite the text
}

bool has_masked_loss(std::span<const std::int64_t> text, const SampleRules& rules) {
  return holds(text.subspan(1), rules.pad) ||
         (rules.eod_mask_loss && holds(text.first(text.size() - 1), rules.eod));
}

void add_document_starts(std::span<const std::int64_t> tokens, std::int64_t eod, std::int64_t first,
                         std::vector<std::int64_t>& starts) {
  starts.push_back(first);
  for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
    if (tokens[i] == eod) starts.push_back(first + static_cast<std::int64_t>(i) + 1);
}

}  // namespace colonnade::data
