// See folders.h.
#include "colonnade/checkpoint/folders.h"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <tuple>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/checkpoint/publish.h"

namespace colonnade::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step_";

}  // namespace

fs::path strip_trailing_slash(const fs::path& typed) {
  return typed.has_filename() || !typed.has_relative_path() ? typed : typed.parent_path();
}

std::error_code access_error(const fs::path& folder) {
  std::error_code fault;
  const bool is_run_folder = fs::exists(folder / "checkpoints", fault);
  const fs::path listed = is_run_folder ? folder / "checkpoints" : folder;
  if (!fault) std::ignore = fs::exists(listed / "latest", fault);
  if (!fault && fs::is_directory(listed)) std::ignore = fs::directory_iterator(listed, fault);
  return fault;
}

std::string step_folder_name(std::int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

std::optional<std::int64_t> step_of_name(const std::string& name) {
  std::int64_t step = 0;
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const char* end = name.data() + name.size();
  const auto [stop, failure] = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (failure != std::errc() || stop != end || step < 0 || step_folder_name(step) != name)
    return std::nullopt;
  return step;
}

std::string iteration_folder_name(std::int64_t iteration) { return fmt::format("iter_{:07}", iteration); }

std::optional<std::int64_t> iteration_of_name(const std::string& name) {
  constexpr std::string_view kPrefix = "iter_";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  std::int64_t iteration = 0;
  const auto [end, error] =
      std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), iteration);
  if (error != std::errc() || end != name.data() + name.size() || iteration_folder_name(iteration) != name)
    return std::nullopt;
  return iteration;
}

std::map<std::int64_t, fs::path> step_folders(const fs::path& checkpoints) {
  std::map<std::int64_t, fs::path> found;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(checkpoints, missing))
    if (const auto step = step_of_name(entry.path().filename().string()); step && entry.is_directory())
      found[*step] = entry.path();
  return found;
}

std::vector<std::int64_t> saved_steps(const fs::path& checkpoints) {
  std::vector<std::int64_t> steps;
  for (const auto& [step, path] : step_folders(checkpoints)) steps.push_back(step);
  return steps;
}

std::vector<fs::path> leftovers(const fs::path& checkpoints) {
  std::vector<fs::path> found;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(checkpoints, missing)) {
    const fs::path name = entry.path().filename();
    const std::string stem = name.stem().string();
    if ((name.extension() == kStagingSuffix || name.extension() == kRemovedSuffix) &&
        (step_of_name(stem) || iteration_of_name(stem)))
      found.push_back(entry.path());
  }
  return found;
}

std::optional<std::int64_t> latest_step(const fs::path& checkpoints) {
  std::error_code missing;
  if (!fs::is_regular_file(checkpoints / "latest", missing)) return std::nullopt;
  std::string name = read_file(checkpoints / "latest");
  while (!name.empty() && (name.back() == '\n' || name.back() == ' ' || name.back() == '\r')) name.pop_back();
  return step_of_name(name);
}

void set_latest(const fs::path& checkpoints, std::int64_t step) {
  write_file_atomically(checkpoints / "latest", step_folder_name(step) + "\n");
}

void make_staging(const fs::path& staging) {
  const fs::path parent = staging.parent_path();
  create_folders(parent);
  for (const fs::path& leftover : leftovers(parent)) fs::remove_all(leftover);
  fs::remove_all(staging);
  fs::create_directory(staging);
}

void remove_step(const fs::path& step_folder) {
  const fs::path removed = with_suffix(step_folder, kRemovedSuffix);
  fs::rename(step_folder, removed);
  fs::remove_all(removed);
}

void retain(const fs::path& checkpoints, std::int64_t newest, std::int64_t interval) {
  if (interval <= 0) return;
  for (const auto& [step, folder] : step_folders(checkpoints)) {
    if (step >= newest || step % interval == 0) continue;
    try {
      remove_step(folder);
    } catch (const std::exception& e) {
      log::warning("{}: an old checkpoint cannot be removed; {}", folder.string(), e.what());
    }
  }
}

}  // namespace colonnade::checkpoint
