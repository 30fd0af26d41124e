// Masked language modeling: selection of the masked spans of a text, identical to Megatron's.
// Sources: Megatron's core/datasets/masked_dataset.py (_create_masked_lm_predictions); SpanBERT's random span
// lengths, arXiv:1907.10529.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "colonnade/data/numpy_random.h"

namespace colonnade::data {

struct MaskRules {
  double probability = 0.15;   ///< fraction of masked tokens
  std::int64_t max_words = 1;  ///< maximum words per span (Megatron's masking_max_ngram)
  /// Span lengths follow the geometric distribution with p = 0.2, clamped to max_words; otherwise length n
  /// has a probability proportional to 1 / n.
  bool geometric = false;
  bool favors_longer = false;       ///< without geometric: swaps the probabilities of n and max_words + 1 - n
  bool whole_words = true;          ///< masks all tokens of a word together
  std::int64_t cls = -1, sep = -1;  ///< never masked
  std::vector<bool> continues_word = {};  ///< per id: continues a word ("##..."); false for missing ids
};

/// Ascending positions of the tokens of a span, contiguous except for a cls or sep between them.
using MaskedSpan = std::vector<std::size_t>;

/// A permuted token: the token at `from`, after masking, is copied to `to`.
struct PermutedToken {
  std::size_t to = 0, from = 0;
};

struct Masking {
  std::vector<MaskedSpan> spans;            ///< in text order, non-overlapping
  std::vector<PermutedToken> permutations;  ///< in ascending order of `to`; disjoint from the spans
};

/// Masks at most min(probability * length, max(1, round(probability * number of tokens))) tokens;
/// `length` is the target length of the sample. Visits words in shuffled order: at each one starts a span of
/// a random number of words, shortened to the remaining budget and skipped if it would overlap another.
/// on_mask(position), if given, is called for each token as it is selected and may draw from `random`. With
/// `permuted_lengths`, the generator of their span lengths (never geometric), an equal number of unmasked
/// tokens is selected in the same way and permuted among each other.
Masking mask_spans(std::span<const std::int64_t> tokens, std::int64_t length, const MaskRules& rules,
                   RandomState& random, const std::function<void(std::size_t position)>& on_mask = {},
                   RandomState* permuted_lengths = nullptr);

}  // namespace colonnade::data
