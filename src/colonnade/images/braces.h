// Patterns with braces, as shells and Megatron-Energon's split.yaml write many names at once.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace colonnade::images {

/// What a call may still make of patterns: each expand_braces takes its words and bytes off.
struct WordBudget {
  std::size_t words = 1'000'000;
  std::size_t bytes = std::size_t{256} << 20;
};

/// All words of a pattern with {a,b} and {3..17} or {003..017}, nested 16 deep at most, in the order of a
/// shell. They are counted before the first one is made: memory is bounded by the budget. Throws ConfigError
/// beyond it, for a missing bracket, and for a pattern of more than 4,096 characters.
std::vector<std::string> expand_braces(const std::string& pattern, WordBudget& budget);

}  // namespace colonnade::images
