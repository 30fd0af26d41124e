// The words of --split and of the data paths: one reading for the rules and for the data.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace colonnade::config {

/// The settings that name the data.
inline constexpr std::array<std::string_view, 5> kDataKeys{"data_path", "mock_data", "train_data_path",
                                                           "valid_data_path", "test_data_path"};

/// Whether the setting names the data of `split` ("train", "valid" or "test"), alone or with the others.
constexpr bool names_data_of(std::string_view split, std::string_view data_key) {
  return !data_key.ends_with("_data_path") || data_key.starts_with(split);
}

/// The numbers of --split, or why they are none: exactly one of the two is empty.
struct SplitWords {
  std::vector<double> parts;
  std::string fault;  ///< what was found instead: "'x'", "4 numbers"
};

/// Reads one to three numbers with a sum above 0: "969, 30, 1", "99/1/0", "[99 1]". As in Megatron a number
/// is a run of digits and points, and what stands between them does not matter; but letters and signs are
/// faults.
SplitWords read_split(std::string_view text);

/// The number that the whole word is; nothing for "3x", "" and names.
std::optional<double> number_of(std::string_view word);

/// Whether data paths are (weight, prefix) pairs: an even number of words of which every first is a number.
bool are_pairs(std::span<const std::string> words);

struct PathsFault {
  std::string rule, got, way_out;
};

/// What is wrong with the words of data paths: a weight that is not above 0 and finite, or a number where the
/// words are no pairs.
std::optional<PathsFault> paths_fault(std::span<const std::string> words);

}  // namespace colonnade::config
