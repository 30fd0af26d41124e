// What Megatron Core calls a data set: the text whose MD5 names the files of its indices.
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

/// A dictionary as Python's json.dumps(..., indent=4) writes it, keys in the order of add().
class JsonDict {
 public:
  /// `json`: a value as the functions below write it, or text() of another.
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

/// A class of data sets of a run: which samples are made, and with which settings.
struct DatasetClass {
  std::string name;  ///< Megatron's, "GPTDataset"
  std::int64_t seed = 0;
  std::int64_t seq_length = 0;
  std::string tokenizer = "null";  ///< JSON, as tokenizer_identity
  /// What else Megatron counts among its settings, keys with JSON.
  std::vector<std::pair<std::string, std::string>> further = {};

  /// Whether names of files say which split they are of.
  [[nodiscard]] bool names_split() const { return further.empty(); }
};

/// What Megatron Core 0.16.1 knows a run's tokenizer by, in JSON: its class, path, and the arguments of its
/// making. `vocab_size`: that of --vocab-size. "null" without a tokenizer. Of types that it does not have
/// (SFTTokenizer) the same form with the type's name, which no Megatron writes.
std::string tokenizer_identity(const config::Data& data, std::int64_t vocab_size);

/// One data set. `split_words`: --split, or nothing where each split has data of its own.
std::string describe_dataset(const DatasetClass& about, const std::string& prefix,
                             std::optional<std::int64_t> num_samples, Split split,
                             const std::optional<std::string>& split_words);

/// A blend of data sets that are described so.
std::string describe_blend(std::span<const std::string> datasets, Split split,
                           std::span<const double> weights, std::int64_t size);
/// A blend of all samples of data sets that have `sizes` of them.
std::string describe_blend(std::span<const std::string> datasets, Split split,
                           std::span<const std::int64_t> sizes);

/// What a description says besides paths, those of the data and of the tokenizer: equal for all spellings of
/// them, and for other data too. Empty: `description` is none of the above.
std::string without_paths(const std::string& description);

}  // namespace colonnade::data
