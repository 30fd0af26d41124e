// How far two words are apart: for "did you mean".
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace colonnade {

/// Levenshtein distance: insertions, deletions and replacements of bytes that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate with the fewest edits, the first of equals; "" when none is within a third of the
/// word's length. At least 2 edits are allowed, but never as many as the word has letters.
std::string nearest_word(std::string_view word, std::span<const std::string> candidates);

}  // namespace colonnade
