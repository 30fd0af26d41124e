// Brace patterns, with which shells and Megatron-Energon's split.yaml abbreviate many names.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace colonnade::images {

/// Remaining words and bytes that the patterns of a call may expand to; each expand_braces subtracts its own.
struct WordBudget {
  std::size_t words = 1'000'000;
  std::size_t bytes = std::size_t{256} << 20;
};

/// Expands a pattern with {a,b} and {3..17} or {003..017}, nested up to 16 deep, in the order of a shell. The
/// words are counted before any is made, so the budget bounds the memory. Throws ConfigError beyond it, for a
/// missing bracket, and for a pattern of more than 4,096 characters.
std::vector<std::string> expand_braces(const std::string& pattern, WordBudget& budget);

}  // namespace colonnade::images
