// Which tokens of a text are hidden from a model that shall tell them: spans of whole words, as Megatron's.
// Source: Megatron's core/datasets/masked_dataset.py (_create_masked_lm_predictions); spans of drawn lengths
// are SpanBERT's, arXiv:1907.10529.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "colonnade/data/numpy_random.h"

namespace colonnade::data {

struct MaskRules {
  double probability = 0.15;   ///< share of the tokens that are masked
  std::int64_t max_words = 1;  ///< of a span
  /// Lengths of spans are drawn from the geometric distribution of 0.2, cut at max_words; else length n has a
  /// probability in proportion to 1 / n.
  bool geometric = false;
  bool longer = false;               ///< without geometric: length max_words + 1 - n has n's probability
  bool whole_words = true;           ///< tokens that continue a word are masked with its first
  std::int64_t cls = -1, sep = -1;   ///< never masked
  std::vector<bool> continues = {};  ///< of each id: it continues a word ("##..."); missing ids do not
};

/// Positions of the tokens of a span, ascending. They follow each other, but for a cls or sep between them.
using MaskedSpan = std::vector<std::size_t>;

/// A token that takes another's place: what stands at `from`, after masking, goes to `to`.
struct MovedToken {
  std::size_t to = 0, from = 0;
};

struct Masking {
  std::vector<MaskedSpan> spans;  ///< in the order of the text; they do not overlap
  std::vector<MovedToken> moves;  ///< by `to`, ascending; none is masked
};

/// Masked are at most min(probability * length, max(1, round(probability * number of tokens))) tokens, where
/// `length` is what the text was made for. Words are visited in shuffled order; a span of a drawn number of
/// words begins at each, is shortened to what may still be masked, and is left out where it would overlap.
/// on_mask(position), where given, is called for each token when it is chosen and may draw from `random`.
/// With `moved_lengths`, from which the lengths of their spans are drawn (never geometric), as many tokens
/// that are not masked are chosen in the same way and trade places with each other.
Masking mask_spans(std::span<const std::int64_t> tokens, std::int64_t length, const MaskRules& rules,
                   RandomState& random, const std::function<void(std::size_t position)>& on_mask = {},
                   RandomState* moved_lengths = nullptr);

}  // namespace colonnade::data
