// See changed_data.h.
#include "colonnade/train/changed_data.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "colonnade/train/run_folder.h"

namespace colonnade::train {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kNsOfSecond = 1'000'000'000;
constexpr std::size_t kNamed = 4;

/// Whether a file is a chat file or one of a folder of them, or .bin or .idx of a prefix.
bool belongs(const std::string& path, const std::string& set) {
  std::string name = fs::absolute(set).lexically_normal();
  while (name.ends_with('/')) name.pop_back();
  return path == name || fs::path(path).parent_path() == name || path == name + ".bin" ||
         path == name + ".idx";
}

std::string short_name(const DataFile& file) { return fs::path(file.path).filename(); }

std::string state_of(const DataFile& file) {
  return fmt::format("{} bytes of {}", file.bytes,
                     local_time("%Y-%m-%d %H:%M:%S", file.changed_ns / kNsOfSecond));
}

std::string change_of(const DataFile& was, const DataFile& is) {
  const std::string before = state_of(was), now = state_of(is);
  if (before != now) return fmt::format("{} {} -> {}", short_name(is), before, now);
  return fmt::format("{} other bytes, checksum {}... -> {}...", short_name(is), was.xxh3_128.substr(0, 8),
                     is.xxh3_128.substr(0, 8));
}

/// The files of a set.
std::vector<DataFile> files_of(const LedgerLine& line, const std::string& set) {
  std::vector<DataFile> files;
  std::ranges::copy_if(line.files, std::back_inserter(files),
                       [&](const DataFile& file) { return belongs(file.path, set); });
  return files;
}

/// None of a set that the session before did not read.
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
      changes.push_back(fmt::format("{} is gone, {}", short_name(file), state_of(file)));
  if (const std::size_t all = changes.size(); all > kNamed) {
    changes.resize(kNamed);
    changes.push_back(fmt::format("{} more files", all - kNamed));
  }
  return changes;
}

std::vector<std::string> changed_tokens(const std::vector<job::ChangedTokens>& tokens,
                                        const std::string& set) {
  std::vector<std::string> changes;
  for (const job::ChangedTokens& changed : tokens)
    for (const auto& [split, was, is] : changed.parts)
      if (changed.name == set) changes.push_back(fmt::format("{} tokens {} -> {}", split, was, is));
  return changes;
}

/// What follows for a set that is read in these splits.
std::string effect(const std::vector<std::string>& splits) {
  constexpr std::array<std::pair<const char*, const char*>, 3> kEffects{
      {{"train", "sample numbers go on in the new data"},
       {"valid", "validation losses do not compare"},
       {"test", "test losses do not compare"}}};
  std::vector<std::string> effects;
  for (const auto& [split, text] : kEffects)
    if (std::ranges::find(splits, split) != splits.end()) effects.emplace_back(text);
  return fmt::format("{}", fmt::join(effects, ", "));
}

/// The sets in their order, each with the splits that it is read in.
std::vector<std::pair<std::string, std::vector<std::string>>> sets_with_splits(const nlohmann::json& data) {
  std::vector<std::pair<std::string, std::vector<std::string>>> sets;
  for (const auto& [split, about] : data.items())
    for (const auto& each : about.at("sets")) {
      const auto name = each.at("name").get<std::string>();
      auto set = std::ranges::find(sets, name, [](const auto& known) { return known.first; });
      if (set == sets.end()) set = sets.insert(set, {name, {}});
      set->second.push_back(split);
    }
  return sets;
}

}  // namespace

std::vector<std::string> changed_data(const LedgerLine& now, const std::optional<LedgerLine>& last,
                                      const std::vector<job::ChangedTokens>& tokens) {
  std::vector<std::string> told;
  for (const auto& [set, splits] : sets_with_splits(now.data)) {
    std::vector<std::string> changes = changed_tokens(tokens, set);
    const auto files =
        last ? changed_files(files_of(now, set), files_of(*last, set)) : std::vector<std::string>();
    changes.insert(changes.end(), files.begin(), files.end());
    if (changes.empty()) continue;
    told.push_back(
        fmt::format("{}: changed since {}: {}: {}{}", set,
                    files.empty() ? "the checkpoint" : "the session of " + last->began,
                    fmt::join(changes, "; "), effect(splits),
                    files.empty() ? "" : "; `colonnade data audit` says which sessions read the old data"));
  }
  return told;
}

}  // namespace colonnade::train
