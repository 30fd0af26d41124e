// Inputs, labels, loss mask, positions and documents of one sample.
// Source: Megatron's core/datasets/gpt_dataset.py.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace colonnade::data {

struct SampleRules {
  std::int64_t eod = -1;            ///< end of document
  std::int64_t pad = -1;            ///< pads samples at the end of the data; -1 equals no token
  bool reset_position_ids = false;  ///< positions restart after each end of document
  bool eod_mask_loss = false;       ///< no loss where the input is the end of document
};

/// Outputs of S values each; empty ones are not written.
struct SampleView {
  std::span<std::int64_t> tokens, labels, position_ids;
  std::span<float> loss_mask;
};

/// For text of S + 1 tokens: tokens = text[0, S), labels = text[1, S]. For text of S tokens the last label is
/// the pad. loss_mask is 0 where the label is the pad (and by eod_mask_loss), else 1; pads become token 0.
/// out.tokens may alias the text.
void fill_sample(std::span<const std::int64_t> text, const SampleRules& rules, SampleView out);

/// Whether the loss mask of S + 1 tokens contains a 0.
bool has_masked_loss(std::span<const std::int64_t> text, const SampleRules& rules);

/// Appends the starts of a row's documents, `first` being the row's: the row's, and after each end of
/// document (with --reset-attention-mask). `tokens` are those of the text: pads equal to the end of document
/// count, as in Megatron.
void add_document_starts(std::span<const std::int64_t> tokens, std::int64_t eod, std::int64_t first,
                         std::vector<std::int64_t>& starts);

}  // namespace colonnade::data
