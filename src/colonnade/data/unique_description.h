// Megatron Core's unique description of a data set: its MD5 names the files of the index cache.
// Source: Megatron Core 0.16.1, core/datasets/megatron_dataset.py, blended_dataset.py and
// core/tokenizers/text/utils/build_tokenizer.py.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "colonnade/config/training.h"
#include "colonnade/data/split.h"

namespace colonnade::data {

/// A dictionary formatted as Python's json.dumps(..., indent=4), with keys in the order of add().
class JsonDict {
 public:
  /// `json` is a value formatted by one of the functions below, or the text() of another dictionary.
  JsonDict& add(std::string_view key, std::string_view json);
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::string> entries_;
};
std::string json_of(std::string_view text);
std::string json_of(double value);
std::string json_of(std::int64_t value);
std::string json_of(bool value);
inline std::string json_of(const char* text) { return json_of(std::string_view(text)); }
std::string json_list(std::span<const std::string> values);

/// Megatron's data set class of a run and the settings that its description holds.
struct DatasetClass {
  std::string name;  ///< Megatron's class name, such as "GPTDataset"
  std::int64_t seed = 0;
  std::int64_t seq_length = 0;
  std::string tokenizer = "null";  ///< JSON from tokenizer_identity
  /// Additional keys of the description and their JSON values.
  std::vector<std::pair<std::string, std::string>> extra_keys = {};

  /// Whether the names of its cache files contain the split.
  [[nodiscard]] bool has_split_in_file_names() const { return extra_keys.empty(); }
};

/// Megatron Core 0.16.1's JSON identity of the run's tokenizer: class, path and constructor arguments. It is
/// "null" without a tokenizer. `vocab_size` is --vocab-size. Types unknown to Megatron (SFTTokenizer) get the
/// same form with their type name, which no Megatron writes.
std::string tokenizer_identity(const config::Data& data, std::int64_t vocab_size);

/// Description of one data set. `split_words` is --split, or empty if each split has its own data.
std::string describe_dataset(const DatasetClass& about, const std::string& prefix,
                             std::optional<std::int64_t> num_samples, Split split,
                             const std::optional<std::string>& split_words);

/// Description of a weighted blend of the data sets described by `datasets`.
std::string describe_blend(std::span<const std::string> datasets, Split split,
                           std::span<const double> weights, std::int64_t size);
/// Description of a blend of all samples of data sets with the given `sizes`.
std::string describe_blend(std::span<const std::string> datasets, Split split,
                           std::span<const std::int64_t> sizes);

/// `description` with the paths of data and tokenizer cleared, so that it is the same for every spelling of a
/// path (and for other data). Empty if `description` is not one of the above.
std::string without_paths(const std::string& description);

}  // namespace colonnade::data
