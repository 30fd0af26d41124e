// See shards.h.
#include "colonnade/images/shards.h"

#include <fmt/ranges.h>
#include <glob.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <sstream>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/images/braces.h"

namespace colonnade::images {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestField = 4096;
constexpr std::uintmax_t kLargestMetadata = 64 << 20;
/// Two per shard for a million shards, and some for the rest. A node takes more than a hundred times its
/// text.
constexpr std::int64_t kMostNodes = 2'100'000;

/// Counts the nodes of a text before any is created. Throws DataError beyond kMostNodes.
class NodeCount final : public YAML::EventHandler {
 public:
  explicit NodeCount(const fs::path& path) : path_(path) {}
  void OnDocumentStart(const YAML::Mark& /*mark*/) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override { add(mark); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t /*anchor*/) override { add(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& /*value*/) override {
    add(mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                       YAML::EmitterStyle::value /*style*/) override {
    add(mark);
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& mark, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {
    add(mark);
  }
  void OnMapEnd() override {}

 private:
  void add(const YAML::Mark& mark) {
    if (++nodes_ > kMostNodes)
      throw DataError(
          fmt::format("{}:{} must have at most {} keys and values; got more; name the shards by "
                      "a pattern",
                      path_.string(), mark.line + 1, kMostNodes));
  }
  const fs::path& path_;
  std::int64_t nodes_ = 0;
};

YAML::Node read_yaml(const fs::path& path) {
  if (const std::uintmax_t bytes = fs::file_size(path); bytes > kLargestMetadata)
    throw DataError(fmt::format("{} must be at most {} bytes; got {}; name the shards by a pattern",
                                path.string(), kLargestMetadata, bytes));
  try {
    const std::string text = read_file(path);
    std::istringstream stream(text);
    NodeCount count(path);
    YAML::Parser(stream).HandleNextDocument(count);
    return YAML::Load(text);
  } catch (const YAML::Exception& e) {
    throw DataError(fmt::format("{}:{} must be YAML or JSON; got an error at column {}: {}; fix that line",
                                path.string(), e.mark.line + 1, e.mark.column + 1, e.msg));
  }
}

/// Runs `read` on a file's YAML; converts type errors to DataError.
void with_yaml(const fs::path& path, const std::function<void(const YAML::Node&)>& read) {
  const YAML::Node root = read_yaml(path);
  try {
    read(root);
  } catch (const YAML::Exception& e) {
    throw DataError(
        fmt::format("{}:{} must be as `energon prepare` writes it; got {}; prepare the folder again",
                    path.string(), e.mark.line + 1, e.msg));
  }
}

/// Throws ConfigError with a fix for the first key of `map` that is not in `known`.
void require_known_keys(const fs::path& path, const YAML::Node& map, const std::vector<std::string>& known) {
  for (const auto& item : map)
    if (const auto key = item.first.as<std::string>(); std::ranges::find(known, key) == known.end())
      throw ConfigError(fmt::format(
          "{}:{} must have no keys but {}; got {}, which is not supported; remove it, or name the shards by a pattern",
          path.string(), item.first.Mark().line + 1, fmt::join(known, ", "), key));
}

std::vector<std::string> texts_of(const YAML::Node& list, WordBudget& budget) {
  std::vector<std::string> texts;
  if (list && !list.IsNull())
    for (const YAML::Node& item : list)
      for (std::string& word : expand_braces(item.as<std::string>(), budget))
        texts.push_back(std::move(word));
  return texts;
}

fs::path first_that_exists(const fs::path& folder, const std::vector<const char*>& names) {
  for (const char* name : names)
    if (fs::exists(folder / name)) return folder / name;
  throw DataError(
      fmt::format("{} must hold {}; got none; run `energon prepare`, or name the shards by a pattern",
                  folder.string(), names.front()));
}

[[noreturn]] void throw_unsupported_type(const fs::path& path, const std::string& got) {
  throw ConfigError(fmt::format(
      "{}: sample_type must be CaptioningSample or VQASample; got {}; prepare the folder as one of the two, or name the "
      "fields by --image and --caption, or --image, --context and --answers",
      path.string(), got));
}

/// The class that `node` names, with its module unless it is Energon's.
std::string class_of(const YAML::Node& node) {
  const auto name = node["__class__"].as<std::string>();
  const YAML::Node module = node["__module__"];
  if (!module || module.as<std::string>() == "megatron.energon") return name;
  return module.as<std::string>() + "." + name;
}

std::string sample_type_of(const fs::path& path, const YAML::Node& root) {
  std::string type = "none";
  if (const YAML::Node sample = root["sample_type"]; sample) {
    type = class_of(sample);
    require_known_keys(path, sample, {"__module__", "__class__"});
  }
  if (root["__class__"]) {
    const std::string loader = class_of(root);
    if (loader == "CaptioningWebdataset") return "CaptioningSample";  // older versions of Energon
    if (loader == "VQAWebdataset") return "VQASample";
    if (loader != "StandardWebdatasetFactory") return loader;  // which reads sample_type
  }
  return type;
}

void reject_python(const fs::path& path, const YAML::Node& root) {
  for (const char* code : {"sample_loader", "part_filter"})
    if (root[code])
      throw ConfigError(fmt::format(
          "{} must map fields by field_map; got {}, which is Python code; write a field_map, or name the fields by "
          "--image and --caption, or --image, --context and --answers",
          path.string(), code));
  const YAML::Node subflavors = root["subflavors"];
  if (subflavors && !subflavors.IsNull() && subflavors.size() > 0)
    throw ConfigError(fmt::format(
        "{} must have no subflavors; got some, which only Python code uses; remove them", path.string()));
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
      throw ConfigError(fmt::format("{}: field_map must hold only {}; got {}; remove it", path.string(),
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
    const std::string type = sample_type_of(path, root);
    if (type != "CaptioningSample" && type != "VQASample") throw_unsupported_type(path, type);
    reject_python(path, root);
    require_known_keys(path, root, {"sample_type", "field_map", "subflavors", "__module__", "__class__"});
    fields.type = type == "CaptioningSample" ? SampleType::kCaptioning : SampleType::kVqa;
    read_field_map(path, root["field_map"], fields);
  });
  return fields;
}

SampleFields plain_fields() {
  return {.image = {{"jpg", {}}, {"jpeg", {}}, {"png", {}}}, .caption = {{"txt", {}}, {"json", {"caption"}}}};
}

/// Whether no field remains to be read from a dataset.yaml.
bool is_complete(const SampleFields& fields) {
  return !fields.image.empty() &&
         (!fields.caption.empty() || (!fields.context.empty() && !fields.answers.empty()));
}

void override_fields(const SampleFields& with, SampleFields& fields) {
  const auto take = [](const Field& from, Field& to) {
    if (!from.empty()) to = from;
  };
  take(with.image, fields.image);
  take(with.caption, fields.caption);
  take(with.context, fields.context);
  take(with.answers, fields.answers);
  if (!with.context.empty()) fields.type = SampleType::kVqa;
  if (!with.caption.empty()) fields.type = SampleType::kCaptioning;
}

ShardSet read_prepared(const fs::path& root, const std::string& split, const ShardOverrides& overrides) {
  const fs::path meta = root / ".nv-meta";
  ShardSet set{.root = root};
  const fs::path splits = first_that_exists(meta, {"split.yaml", "split.json"});
  WordBudget budget;
  with_yaml(splits, [&](const YAML::Node& node) {
    require_known_keys(splits, node, {"split_parts", "exclude"});
    const YAML::Node parts = node["split_parts"];
    if (!parts || !parts[split]) {
      std::string present;
      if (parts)
        for (const auto& part : parts) present += " " + part.first.as<std::string>();
      throw ConfigError(fmt::format("--split must be one of{} in {}; got {}; give another", present,
                                    splits.string(), split));
    }
    for (std::string& name : texts_of(node["exclude"], budget)) set.excluded.insert(std::move(name));
    for (std::string& name : texts_of(parts[split], budget))
      if (!set.excluded.contains(name)) set.names.push_back(std::move(name));
  });
  if (set.names.empty())
    throw DataError(fmt::format("{}: the split {} must hold shards; got none; give --split another one",
                                splits.string(), split));
  std::map<std::string, std::int64_t> counts;
  const fs::path info = first_that_exists(meta, {".info.json", ".info.yaml"});
  with_yaml(info, [&](const YAML::Node& node) {
    require_known_keys(info, node, {"energon_version", "shard_counts"});
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
  const std::string& yaml = overrides.dataset_yaml;
  if (!yaml.empty() || !is_complete(overrides.fields))
    set.fields = read_fields(first_that_exists(meta, {yaml.empty() ? "dataset.yaml" : yaml.c_str()}));
  return set;
}

void add_folder(const fs::path& folder, ShardSet& set) {
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".tar" && !entry.is_directory())
      set.names.push_back(fs::relative(entry.path(), set.root).string());
  std::sort(set.names.begin(), set.names.end());
}

/// Rejects what Energon accepts instead of a folder, and folders among other words.
void require_shard(const fs::path& path) {
  const fs::path end = path.extension();
  const bool lines = end == ".jsonl";
  if (lines || end == ".yaml" || end == ".yml" || end == ".json")
    throw ConfigError(
        fmt::format("{} must be a tar shard; got {}; name the folder or the shards of one data set",
                    path.string(), lines ? "JSON lines" : "a metadata set, or another list of data sets"));
  if (fs::is_directory(path))
    throw ConfigError(fmt::format(
        "{} must be a tar shard; got a folder among several arguments; give one folder alone, or a pattern "
        "such as {}",
        path.string(), (path / "*.tar").string()));
}

void add_pattern(const std::string& pattern, WordBudget& budget, ShardSet& set) {
  for (const std::string& word : expand_braces(pattern, budget)) {
    const std::size_t before = set.names.size();
    glob_t matches{};
    if (::glob(word.c_str(), 0, nullptr, &matches) == 0)
      for (std::size_t i = 0; i < matches.gl_pathc; ++i) set.names.emplace_back(matches.gl_pathv[i]);
    ::globfree(&matches);
    if (set.names.size() == before)
      throw DataError(fmt::format("{} must name tar shards; got no such file; check the pattern", word));
    for (std::size_t i = before; i < set.names.size(); ++i) require_shard(set.names[i]);
  }
}

/// Parses PART, or PART[KEY][KEY]; empty if the text is neither.
std::optional<FieldPath> field_path_of(std::string_view text) {
  const std::size_t end = std::min(text.find('['), text.size());
  FieldPath path{.part = std::string(text.substr(0, end))};
  if (path.part.empty() || path.part.find_first_of("] \t\n\r\f\v") != std::string::npos) return {};
  for (std::size_t at = end; at < text.size();) {
    const std::size_t close = text.find_first_of("[]", at + 1);
    if (text[at] != '[' || close == std::string_view::npos || text[close] != ']' || close == at + 1)
      return {};
    path.keys.emplace_back(text.substr(at + 1, close - at - 1));
    at = close + 1;
  }
  return path;
}

}  // namespace

Field parse_field(const std::string& what, const std::string& text) {
  if (text.size() > kLongestField)
    throw ConfigError(fmt::format("{} must have at most {} characters; got {}; name fewer parts", what,
                                  kLongestField, text.size()));
  Field field;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string option = text.substr(at, comma - at);
    std::optional<FieldPath> path = field_path_of(option);
    if (!path)
      throw ConfigError(fmt::format(
          "{} must be parts such as `jpg`, `png,jpg` or `json[caption]`; got '{}'; name the part after a key's first dot",
          what, text));
    if (!path->keys.empty() && path->part != "json" && !path->part.ends_with(".json"))
      throw ConfigError(
          fmt::format("{}: only a JSON part may have [keys]; got '{}'; remove them", what, option));
    field.push_back(std::move(*path));
    at = comma + 1;
  }
  return field;
}

ShardSet find_shards(const std::vector<std::string>& words, const std::string& split,
                     const ShardOverrides& overrides) {
  if (words.size() == 1 && fs::is_directory(fs::path(words[0]) / ".nv-meta")) {
    ShardSet set = read_prepared(words[0], split, overrides);
    override_fields(overrides.fields, set.fields);
    return set;
  }
  if (!overrides.dataset_yaml.empty())
    throw ConfigError(
        fmt::format("--dataset-yaml requires a folder prepared by Energon; got {} for {}; remove it",
                    overrides.dataset_yaml, words.empty() ? "nothing" : words[0]));
  if (split != "train")
    throw ConfigError(fmt::format(
        "--split requires a folder prepared by Energon; got {} for {}; name its shards by a pattern", split,
        words.empty() ? "nothing" : words[0]));
  ShardSet set;
  set.fields = plain_fields();
  override_fields(overrides.fields, set.fields);
  if (words.size() == 1 && fs::is_directory(words[0])) {
    set.root = words[0];
    add_folder(words[0], set);
  } else {
    WordBudget budget;
    for (const std::string& word : words) add_pattern(word, budget, set);
  }
  if (set.names.empty())
    throw DataError(fmt::format("{} must hold tar shards; got none; check the path",
                                words.empty() ? "no path" : words[0]));
  set.counts.assign(set.names.size(), -1);
  return set;
}

}  // namespace colonnade::images
