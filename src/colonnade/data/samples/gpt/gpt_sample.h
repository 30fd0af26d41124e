// What a model is given for one sample: inputs, labels, which losses count, positions, who sees whom.
// Source: Megatron's core/datasets/gpt_dataset.py.
#pragma once

#include <cstdint>
#include <span>

namespace colonnade::data {

struct SampleRules {
  std::int64_t eod = -1;              ///< end of document
  std::int64_t pad = -1;              ///< fills samples that the data cannot; -1 collides with no token
  bool reset_position_ids = false;    ///< positions restart after each end of document
  bool reset_attention_mask = false;  ///< tokens do not see what lies before the last end of document
  bool eod_mask_loss = false;         ///< no loss where the input is the end of document
};

/// S numbers each; what is empty is not written.
struct SampleView {
  std::span<std::int64_t> tokens, labels, position_ids;
  std::span<float> loss_mask;
};

/// From text of S + 1 tokens: tokens = text[0, S), labels = text[1, S]. From text of S tokens the last label
/// is the pad. loss_mask is 0 where the label is the pad (and by eod_mask_loss), else 1; pads become token 0.
/// out.tokens may be the text's own memory.
void fill_sample(std::span<const std::int64_t> text, const SampleRules& rules, SampleView out);

/// Whether fill_sample finds a 0 for the loss mask of S + 1 tokens.
bool masks_a_loss(std::span<const std::int64_t> text, const SampleRules& rules);

/// mask [S, S], 1 where row (query) must not see column (key): later columns, and with
/// reset_attention_mask all columns up to the last end of document before the row.
void fill_attention_mask(std::span<const std::int64_t> tokens, const SampleRules& rules,
                         std::span<std::uint8_t> mask);

}  // namespace colonnade::data
