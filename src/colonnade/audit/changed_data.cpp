// See changed_data.h.
#include "colonnade/audit/changed_data.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "colonnade/data/split.h"
#include "colonnade/record/run_folder.h"

namespace colonnade::audit {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kNsOfSecond = 1'000'000'000;
constexpr std::size_t kNamed = 4;

/// Whether a file belongs to a dataset: a chat file, a file in a folder of them, or .bin or .idx of a prefix,
/// next to which a folder of that name may exist. `set`: as set_path.
bool belongs(const DataFile& file, const std::string& set, bool sft) {
  if (!file.sets.empty()) return std::ranges::find(file.sets, set) != file.sets.end();
  if (sft)
    return file.path == set || fs::path(file.path).parent_path() == set;  // old sessions do not record it
  return file.path == set + ".bin" || file.path == set + ".idx";
}

std::string short_name(const DataFile& file) { return fs::path(file.path).filename(); }

std::string state_of(const DataFile& file) {
  return fmt::format("{} bytes of {}", file.bytes,
                     record::local_time("%Y-%m-%d %H:%M:%S", file.changed_ns / kNsOfSecond));
}

std::string change_of(const DataFile& was, const DataFile& is) {
  const std::string before = state_of(was), now = state_of(is);
  if (before != now) return fmt::format("{} {} -> {}", short_name(is), before, now);
  return fmt::format("{} other contents, checksum {}... -> {}...", short_name(is), was.xxh3_128.substr(0, 8),
                     is.xxh3_128.substr(0, 8));
}

/// The files of a dataset. `set`: as set_path.
std::vector<DataFile> files_of(const LedgerLine& line, const std::string& set) {
  const auto setting = line.settings.find("sft");
  const bool sft = setting != line.settings.end() && setting->second == "true";
  std::vector<DataFile> files;
  std::ranges::copy_if(line.files, std::back_inserter(files),
                       [&](const DataFile& file) { return belongs(file, set, sft); });
  return files;
}

/// Changes of the files of a dataset; none for one that the session did not read.
std::vector<std::string> changed_files(const std::vector<DataFile>& now, const std::vector<DataFile>& last) {
  std::vector<std::string> changes;
  if (last.empty()) return changes;
  for (const DataFile& file : now) {
    const auto was = std::ranges::find(last, file.path, &DataFile::path);
    if (was == last.end())
      changes.push_back(fmt::format("{} is new, {}", short_name(file), state_of(file)));
    else if (was->xxh3_128 != file.xxh3_128)
      changes.push_back(change_of(*was, file));
  }
  for (const DataFile& file : last)
    if (std::ranges::find(now, file.path, &DataFile::path) == now.end())
      changes.push_back(fmt::format("{} was removed, {}", short_name(file), state_of(file)));
  if (const std::size_t all = changes.size(); all > kNamed) {
    changes.resize(kNamed);
    changes.push_back(fmt::format("{} more files", all - kNamed));
  }
  return changes;
}

/// Token changes of a dataset, each once whatever the spellings of its path.
std::vector<std::string> changed_tokens(const std::vector<job::ChangedTokens>& tokens,
                                        const std::string& set) {
  std::vector<std::string> changes;
  for (const job::ChangedTokens& changed : tokens) {
    if (set_path(changed.name) != set) continue;
    for (const auto& [split, saved, now] : changed.parts) {
      std::string change = fmt::format("{} tokens {} -> {}", split, saved, now);
      if (std::ranges::find(changes, change) == changes.end()) changes.push_back(std::move(change));
    }
  }
  return changes;
}

/// Effect of a change for a dataset that is read in these splits.
std::string effect(const std::vector<std::string>& splits) {
  constexpr std::array<std::pair<const char*, const char*>, 3> kEffects{
      {{"train", "sample indices continue in the new data"},
       {"valid", "validation losses are not comparable"},
       {"test", "test losses are not comparable"}}};
  std::vector<std::string> effects;
  for (const auto& [split, text] : kEffects)
    if (std::ranges::find(splits, split) != splits.end()) effects.emplace_back(text);
  return fmt::format("{}", fmt::join(effects, ", "));
}

struct ReadSet {
  std::string name;  ///< first spelling
  std::string path;  ///< set_path
  std::vector<std::string> splits;
};

/// The datasets in order, each with its splits.
std::vector<ReadSet> sets_with_splits(const nlohmann::json& data) {
  std::vector<ReadSet> sets;
  for (const char* split : data::kSplitNames) {
    if (!data.contains(split)) continue;
    for (const auto& each : data.at(split).at("sets")) {
      const auto name = each.at("name").get<std::string>();
      const std::string path = set_path(name);
      auto set = std::ranges::find(sets, path, &ReadSet::path);
      if (set == sets.end()) set = sets.insert(set, {.name = name, .path = path, .splits = {}});
      set->splits.emplace_back(split);
    }
  }
  return sets;
}

}  // namespace

std::vector<std::string> changed_data(const LedgerLine& now, const std::optional<LedgerLine>& maker,
                                      const std::vector<job::ChangedTokens>& tokens) {
  std::vector<std::string> sentences;
  for (const auto& [name, path, splits] : sets_with_splits(now.data)) {
    std::string changes;
    if (const auto counts = changed_tokens(tokens, path); !counts.empty())
      changes = fmt::format("since the checkpoint: {}", fmt::join(counts, "; "));
    const auto files =
        maker ? changed_files(files_of(now, path), files_of(*maker, path)) : std::vector<std::string>();
    if (!files.empty())
      changes += fmt::format("{}since the session of {}, which made the checkpoint: {}",
                             changes.empty() ? "" : "; ", maker->began, fmt::join(files, "; "));
    if (changes.empty()) continue;
    sentences.push_back(
        fmt::format("{}: changed {}: {}{}", name, changes, effect(splits),
                    files.empty() ? "" : "; `colonnade data audit` shows which sessions read the old data"));
  }
  return sentences;
}

}  // namespace colonnade::audit
