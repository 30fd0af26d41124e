// Edit distance between words, for "did you mean" suggestions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace colonnade {

/// Levenshtein distance: insertions, deletions and replacements of bytes that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate with the smallest edit distance, the first of equals. "" if every distance exceeds
/// max(2, length / 3) or reaches the word's length.
std::string nearest_word(std::string_view word, std::span<const std::string> candidates);

}  // namespace colonnade
