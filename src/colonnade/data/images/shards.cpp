// See shards.h.
#include "colonnade/data/images/shards.h"

#include <glob.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <optional>
#include <regex>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"

namespace colonnade::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostWords = 1'000'000;
constexpr std::size_t kLongestPattern = 4096;
constexpr std::size_t kLargestMetadata = 256 << 20;

/// The words of {A..B}; numbers alone, filled with zeros where an end is.
std::optional<std::vector<std::string>> range_of(const std::string& inside) {
  const std::size_t dots = inside.find("..");
  if (dots == std::string::npos) return {};
  const std::string first = inside.substr(0, dots), last = inside.substr(dots + 2);
  std::int64_t from = 0, to = 0;
  const auto read = [](const std::string& text, std::int64_t& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return !text.empty() && text.size() <= 15 && error == std::errc() && end == text.data() + text.size() &&
           value >= 0;
  };
  if (!read(first, from) || !read(last, to)) return {};
  if (std::abs(to - from) >= static_cast<std::int64_t>(kMostWords))
    throw ConfigError(
        fmt::format("{{{}}}: must give at most {} words; got more; give a folder", inside, kMostWords));
  const bool filled = (first.size() > 1 && first[0] == '0') || (last.size() > 1 && last[0] == '0');
  const std::size_t width = filled ? std::max(first.size(), last.size()) : 0;
  std::vector<std::string> words;
  for (std::int64_t i = from;; i += from <= to ? 1 : -1) {
    words.push_back(fmt::format("{:0{}}", i, width));
    if (i == to) return words;
  }
}

/// The parts of A,B,C outside of inner brackets.
std::vector<std::string> choices_of(const std::string& inside) {
  std::vector<std::string> found(1);
  int depth = 0;
  for (const char c : inside) {
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    if (c == ',' && depth == 0) {
      found.emplace_back();
    } else {
      found.back() += c;
    }
  }
  return found;
}

/// Where the bracket that opens at `open` closes.
std::size_t closing_bracket(const std::string& pattern, std::size_t open) {
  int depth = 0;
  for (std::size_t at = open; at < pattern.size() && depth <= 16; ++at) {
    depth += pattern[at] == '{' ? 1 : pattern[at] == '}' ? -1 : 0;
    if (depth == 0) return at;
  }
  throw ConfigError(fmt::format(
      "'{}': each {{ must have its }}, at most 16 deep; got other ones; write e.g. shard-{{000..010}}.tar",
      pattern));
}

YAML::Node read_yaml(const fs::path& path) {
  const std::string text = read_file(path);
  if (text.size() > kLargestMetadata)
    throw DataError(fmt::format("{}: must be at most {} bytes; got {}; name the shards by a pattern",
                                path.string(), kLargestMetadata, text.size()));
  try {
    return YAML::Load(text);
  } catch (const YAML::Exception& e) {
    throw DataError(fmt::format("{}:{}: must be YAML or JSON; got an error at column {}: {}; mend that line",
                                path.string(), e.mark.line + 1, e.mark.column + 1, e.msg));
  }
}

/// Runs `read` over a file's YAML; what is of another type than asked for becomes a DataError.
void with_yaml(const fs::path& path, const std::function<void(const YAML::Node&)>& read) {
  const YAML::Node root = read_yaml(path);
  try {
    read(root);
  } catch (const YAML::Exception& e) {
    throw DataError(
        fmt::format("{}:{}: must be as `energon prepare` writes it; got {}; prepare the folder again",
                    path.string(), e.mark.line + 1, e.msg));
  }
}

std::vector<std::string> texts_of(const YAML::Node& list) {
  std::vector<std::string> texts;
  if (list && !list.IsNull())
    for (const YAML::Node& item : list)
      for (std::string& word : expand_braces(item.as<std::string>())) texts.push_back(std::move(word));
  return texts;
}

fs::path first_that_exists(const fs::path& folder, const std::vector<const char*>& names) {
  for (const char* name : names)
    if (fs::exists(folder / name)) return folder / name;
  throw DataError(
      fmt::format("{}: must hold {}; got none; run `energon prepare`, or name the shards by a pattern",
                  folder.string(), names.front()));
}

[[noreturn]] void refuse_type(const fs::path& path, const std::string& got) {
  throw ConfigError(fmt::format(
      "{}: sample_type must be CaptioningSample or VQASample; got {}; prepare the folder as one of the two, or name "
      "its shards by a pattern, with --image and --caption or --context and --answers",
      path.string(), got));
}

std::string sample_type_of(const YAML::Node& root) {
  std::string type = "none";
  if (root["sample_type"]) type = root["sample_type"]["__class__"].as<std::string>();
  if (const YAML::Node old = root["__class__"]; old) {  // of older versions of Energon
    type = old.as<std::string>();
    if (type == "CaptioningWebdataset") type = "CaptioningSample";
    if (type == "VQAWebdataset") type = "VQASample";
  }
  return type;
}

void refuse_python(const fs::path& path, const YAML::Node& root) {
  for (const char* code : {"sample_loader", "part_filter"})
    if (root[code])
      throw ConfigError(
          fmt::format("{}: must map fields by field_map; got {}, which is Python code; write a field_map",
                      path.string(), code));
  const YAML::Node subflavors = root["subflavors"];
  if (subflavors && !subflavors.IsNull() && subflavors.size() > 0)
    throw ConfigError(fmt::format(
        "{}: must have no subflavors; got some, which only Python code reads; remove them", path.string()));
}

void read_field_map(const fs::path& path, const YAML::Node& map, SampleFields& fields) {
  const bool caption = fields.type == SampleType::kCaptioning;
  std::map<std::string, Field*> wanted{{"image", &fields.image}};
  if (caption) wanted["caption"] = &fields.caption;
  if (!caption) wanted.insert({{"context", &fields.context}, {"answers", &fields.answers}});
  for (const auto& item : map) {
    const auto name = item.first.as<std::string>();
    const auto found = wanted.find(name);
    if (found == wanted.end())
      throw ConfigError(fmt::format("{}: field_map must hold {} alone; got {}; remove it", path.string(),
                                    caption ? "image and caption" : "image, context and answers", name));
    *found->second = parse_field(path.string() + ": field_map: " + name, item.second.as<std::string>());
  }
  for (const auto& [name, field] : wanted)
    if (field->empty())
      throw ConfigError(fmt::format("{}: field_map must name a part for {}; got none; add e.g. `{}: {}`",
                                    path.string(), name, name, name == "image" ? "jpg" : "txt"));
}

SampleFields read_fields(const fs::path& path) {
  SampleFields fields;
  with_yaml(path, [&](const YAML::Node& root) {
    const std::string type = sample_type_of(root);
    if (type != "CaptioningSample" && type != "VQASample") refuse_type(path, type);
    refuse_python(path, root);
    fields.type = type == "CaptioningSample" ? SampleType::kCaptioning : SampleType::kVqa;
    read_field_map(path, root["field_map"], fields);
  });
  return fields;
}

SampleFields plain_fields() {
  return {.image = {{"jpg", {}}, {"jpeg", {}}, {"png", {}}}, .caption = {{"txt", {}}, {"json", {"caption"}}}};
}

ShardSet read_prepared(const fs::path& root, const std::string& split) {
  const fs::path meta = root / ".nv-meta";
  ShardSet set{.root = root};
  const fs::path splits = first_that_exists(meta, {"split.yaml", "split.json"});
  with_yaml(splits, [&](const YAML::Node& node) {
    const YAML::Node parts = node["split_parts"];
    if (!parts || !parts[split]) {
      std::string there;
      if (parts)
        for (const auto& part : parts) there += " " + part.first.as<std::string>();
      throw ConfigError(fmt::format("--split: must be one of{} that {} has; got {}; give another", there,
                                    splits.string(), split));
    }
    for (std::string& name : texts_of(node["exclude"])) set.excluded.insert(std::move(name));
    for (std::string& name : texts_of(parts[split]))
      if (!set.excluded.contains(name)) set.names.push_back(std::move(name));
  });
  if (set.names.empty())
    throw DataError(fmt::format("{}: the split {} must hold shards; got none; give --split another one",
                                splits.string(), split));
  std::map<std::string, std::int64_t> counts;
  const fs::path info = first_that_exists(meta, {".info.json", ".info.yaml"});
  with_yaml(info, [&](const YAML::Node& node) {
    for (const auto& item : node["shard_counts"])
      counts.emplace(item.first.as<std::string>(), item.second.as<std::int64_t>());
  });
  for (const std::string& name : set.names) {
    const auto found = counts.find(name);
    if (found == counts.end())
      throw DataError(
          fmt::format("{}: shard_counts must hold each shard of split.yaml; got none for {}; run `energon "
                      "prepare` again",
                      info.string(), name));
    set.counts.push_back(found->second);
  }
  set.fields = read_fields(first_that_exists(meta, {"dataset.yaml"}));
  return set;
}

void add_folder(const fs::path& folder, ShardSet& set) {
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".tar" && !entry.is_directory())
      set.names.push_back(fs::relative(entry.path(), set.root).string());
  std::sort(set.names.begin(), set.names.end());
}

void add_pattern(const std::string& pattern, ShardSet& set) {
  for (const std::string& word : expand_braces(pattern)) {
    const std::size_t before = set.names.size();
    glob_t matches{};
    if (::glob(word.c_str(), 0, nullptr, &matches) == 0)
      for (std::size_t i = 0; i < matches.gl_pathc; ++i) set.names.emplace_back(matches.gl_pathv[i]);
    ::globfree(&matches);
    if (set.names.size() == before)
      throw DataError(fmt::format("{}: must name tar shards; got no such file; check the pattern", word));
  }
}

}  // namespace

Field parse_field(const std::string& what, const std::string& text) {
  static const std::regex form(R"(([^\[\],\s]+)((\[[^\[\]]+\])*))");
  Field field;
  for (const std::string& option : choices_of(text)) {
    std::smatch match;
    if (!std::regex_match(option, match, form))
      throw ConfigError(fmt::format(
          "{}: must be parts such as `jpg`, `png,jpg` or `json[caption]`; got '{}'; name the part after a key's first dot",
          what, text));
    FieldPath path{match[1], {}};
    const std::string keys = match[2];
    for (std::size_t at = 0; at < keys.size();) {
      const std::size_t end = keys.find(']', at);
      path.keys.push_back(keys.substr(at + 1, end - at - 1));
      at = end + 1;
    }
    if (!path.keys.empty() && path.part != "json" && !path.part.ends_with(".json"))
      throw ConfigError(
          fmt::format("{}: only a JSON part must have [keys]; got '{}'; leave them out", what, option));
    field.push_back(std::move(path));
  }
  return field;
}

std::vector<std::string> expand_braces(const std::string& pattern) {
  const std::size_t open = pattern.find('{');
  if (open == std::string::npos) return {pattern};
  if (pattern.size() > kLongestPattern)
    throw ConfigError(
        fmt::format("'{}...': a pattern must have at most {} characters; got {}; write a shorter one",
                    pattern.substr(0, 100), kLongestPattern, pattern.size()));
  const std::size_t close = closing_bracket(pattern, open);
  const std::string inside = pattern.substr(open + 1, close - open - 1);
  std::vector<std::string> middles;
  if (auto range = range_of(inside)) {
    middles = std::move(*range);
  } else {
    for (const std::string& choice : choices_of(inside))
      for (std::string& word : expand_braces(choice))
        if (middles.size() <= kMostWords) middles.push_back(std::move(word));
  }
  const std::vector<std::string> tails = expand_braces(pattern.substr(close + 1));
  if (middles.size() * tails.size() > kMostWords)
    throw ConfigError(
        fmt::format("'{}': must give at most {} words; got more; give a folder", pattern, kMostWords));
  std::vector<std::string> words;
  for (const std::string& middle : middles)
    for (const std::string& tail : tails) words.push_back(pattern.substr(0, open) + middle + tail);
  return words;
}

ShardSet find_shards(const std::vector<std::string>& words, const std::string& split) {
  if (words.size() == 1 && fs::is_directory(fs::path(words[0]) / ".nv-meta"))
    return read_prepared(words[0], split);
  if (split != "train")
    throw ConfigError(fmt::format(
        "--split: only a folder that Energon prepared must have splits; got {} of {}; name its shards by a pattern",
        split, words.empty() ? "nothing" : words[0]));
  ShardSet set;
  set.fields = plain_fields();
  if (words.size() == 1 && fs::is_directory(words[0])) {
    set.root = words[0];
    add_folder(words[0], set);
  } else {
    for (const std::string& word : words) add_pattern(word, set);
  }
  if (set.names.empty())
    throw DataError(fmt::format("{}: must hold tar shards; got none; check the path",
                                words.empty() ? "no path" : words[0]));
  set.counts.assign(set.names.size(), -1);
  return set;
}

}  // namespace colonnade::data
