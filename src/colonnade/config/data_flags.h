// Parsing of --split and of data paths, shared by the rules and the data area.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace colonnade::config {

/// Keys of the settings that select the data.
inline constexpr std::array<std::string_view, 5> kDataKeys{"data_path", "mock_data", "train_data_path",
                                                           "valid_data_path", "test_data_path"};

/// Whether the setting selects the data of `split` ("train", "valid" or "test"), alone or with other splits.
constexpr bool names_data_of(std::string_view split, std::string_view data_key) {
  return !data_key.ends_with("_data_path") || data_key.starts_with(split);
}

/// Weights of --split, or an error: exactly one of the two is empty.
struct SplitWeights {
  std::vector<double> parts;
  std::string fault;  ///< the invalid part: "'x'", "4 numbers"
};

/// Parses one to three numbers with a positive sum: "969, 30, 1", "99/1/0", "[99 1]". As in Megatron a number
/// is a sequence of digits and points with arbitrary separators, except that letters and signs are errors.
SplitWeights parse_split(std::string_view text);

/// Value of a word that is a number as a whole; empty for "3x", "" and names.
std::optional<double> number_of(std::string_view word);

/// Whether data paths are (weight, prefix) pairs: an even number of words, every first one a number.
bool is_weighted_blend(std::span<const std::string> words);

/// Error in data paths.
struct DataPathsError {
  std::string rule, got, fix;
};

/// Error in the words of data paths: a weight that is not positive and finite, or a number in a list without
/// weights.
std::optional<DataPathsError> data_paths_error(std::span<const std::string> words);

}  // namespace colonnade::config
