// See data_args.h.
#include "colonnade/data/data_args.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/base/fault_text.h"
#include "colonnade/base/files.h"

namespace colonnade::data {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

constexpr const char* kPerSplit = "--per-split-data-args-path";

std::string read_words_file(const char* flag, const std::string& path) {
  constexpr std::uintmax_t kMost = std::uintmax_t{64} << 20U;
  std::error_code fault;
  const bool is_file = std::filesystem::is_regular_file(path, fault);
  const auto bytes = is_file ? std::filesystem::file_size(path, fault) : 0;
  if (!is_file || fault || bytes > kMost)
    throw ConfigError(fmt::format("{} must name a file of at most {} bytes; got {}{}; correct the path", flag,
                                  kMost, path,
                                  is_file ? fmt::format(" of {}", bytes) : ", which is no file"));
  try {
    return read_file(path);
  } catch (const Error& error) {
    throw ConfigError(fmt::format("{}: {}", flag, error.what()));
  }
}

Words words_of(const std::string& text) {
  std::istringstream in(text);
  Words words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

ConfigError split_error(const std::string& path, const std::string& rule, const std::string& got) {
  return ConfigError(
      fmt::format("{}; got {} in {}; write {{\"train\": [\"PREFIX\"], \"valid\": null, "
                  "\"test\": null}}",
                  fault_text(kPerSplit, rule), got, path));
}

Words words_of(const json& value, const std::string& split, const std::string& path) {
  if (value.is_null()) return {};
  if (value.is_string()) return words_of(value.get<std::string>());
  if (!value.is_array())
    throw split_error(path, split + " must be a list, a string or null", value.type_name());
  Words words;
  for (const json& word : value) {
    if (!word.is_string() && !word.is_number())
      throw split_error(path, split + " must be a list of strings and numbers", word.type_name());
    words.push_back(word.is_string() ? word.get<std::string>() : word.dump());
  }
  return words;
}

void read_per_split(config::Data& data) {
  const std::string path = std::exchange(data.per_split_data_args_path, "");
  const json file = json::parse(read_words_file(kPerSplit, path), nullptr, /*allow_exceptions=*/false);
  if (!file.is_object())
    throw split_error(path, "must be a JSON object", file.is_discarded() ? "no JSON" : file.type_name());
  const std::array<std::pair<const char*, Words*>, 3> splits{
      {{"train", &data.train_data_path}, {"valid", &data.valid_data_path}, {"test", &data.test_data_path}}};
  for (const auto& item : file.items())
    if (std::ranges::none_of(splits, [&item](const auto& split) { return item.key() == split.first; }))
      throw split_error(path, "must have only the keys train, valid and test",
                        fmt::format("'{}'", item.key()));
  bool any = false;
  for (const auto& [split, words] : splits) {
    if (!file.contains(split))
      throw split_error(path, "must have the keys train, valid and test", fmt::format("no '{}'", split));
    *words = words_of(file.at(split), split, path);
    any = any || !words->empty();
  }
  if (!any) throw split_error(path, "must name data", "none");
}

}  // namespace

config::Data with_data_args(config::Data data) {
  const auto count = [](bool given) { return given ? 1 : 0; };
  const int ways =
      count(data.mock_data) + count(!data.data_path.empty()) + count(!data.data_args_path.empty()) +
      count(!data.per_split_data_args_path.empty()) +
      count(!data.train_data_path.empty() || !data.valid_data_path.empty() || !data.test_data_path.empty());
  if (ways != 1) return data;
  if (!data.per_split_data_args_path.empty()) read_per_split(data);
  if (data.data_args_path.empty()) return data;
  const std::string path = std::exchange(data.data_args_path, "");
  data.data_path = words_of(read_words_file("--data-args-path", path));
  if (data.data_path.empty())
    throw ConfigError(fmt::format(
        "--data-args-path must name a file with the words of --data-path; got none in {}; write PREFIX ... "
        "or WEIGHT PREFIX ... into it",
        path));
  return data;
}

}  // namespace colonnade::data
