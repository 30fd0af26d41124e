// See run_folder.h.
#include "colonnade/record/run_folder.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/write_error.h"
#include "colonnade/checkpoint/folders.h"

namespace colonnade::record {

namespace fs = std::filesystem;

std::string local_time(const char* format) { return local_time(format, std::time(nullptr)); }

std::string local_time(const char* format, std::time_t when) {
  std::tm local{};
  ::localtime_r(&when, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), format, &local);
  return text.data();
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

namespace {

/// Runs `make`, which creates folders for `folder` and returns why that failed, or "".
template <typename Make>
void require_writable(const fs::path& folder, const Make& make) {
  std::string reason;
  try {
    reason = make();
  } catch (const fs::filesystem_error& e) {
    reason = e.code().message();
    if (is_no_space(e.code().value())) reason += ", " + free_space_text(folder);
  } catch (const Error& e) {
    reason = e.what();
  }
  if (!reason.empty())
    throw ConfigError(
        fmt::format("--save: the run folder must be writable; got {} ({}); choose another folder",
                    folder.string(), reason));
}

}  // namespace

RunFolder choose_run_folder(const std::string& save) {
  if (!save.empty()) return {save};
  const fs::path first = fs::path("runs") / local_time("%Y-%m-%d_%H-%M-%S");
  fs::path free = first;
  require_writable(first, [&] {
    create_folders(first.parent_path());
    for (int n = 2; !fs::create_directory(free); ++n) free = fmt::format("{}-{}", first.string(), n);
    return std::string();
  });
  return {free};
}

void make_run_folder(const RunFolder& folder) {
  require_writable(folder.root, [&] {
    create_folders(folder.checkpoints());
    return std::string(::access(folder.root.c_str(), W_OK) != 0 ? std::strerror(errno) : "");
  });
}

OwnedFolder::OwnedFolder(const std::string& save, const std::optional<std::vector<std::int64_t>>& steps_seen,
                         OwnerLockOptions options)
    : created_(save.empty() || !fs::exists(save)), folder_(choose_run_folder(save)) {
  options.thing = "--save";
  options.fix = "wait for that run, stop it, or choose another folder";
  try {
    make_run_folder(folder_);
    lock_ = std::make_unique<OwnerLock>(folder_.owner(), std::move(options));
    if (steps_seen) require_steps(*steps_seen);
  } catch (...) {
    if (lock_) {
      lock_.reset();
      remove_empty();
    }
    throw;
  }
}

OwnedFolder::~OwnedFolder() {
  lock_.reset();
  remove_empty();
}

/// Detects another run that owned the folder and ended after this run read its settings.
void OwnedFolder::require_steps(const std::vector<std::int64_t>& seen) const {
  const std::vector<std::int64_t> now = checkpoint::saved_steps(folder_.checkpoints());
  if (now == seen) return;
  const auto text = [](const std::vector<std::int64_t>& steps) {
    return steps.empty() ? "no checkpoint" : fmt::format("checkpoints up to step {}", steps.back());
  };
  throw ConfigError(fmt::format(
      "--save: the checkpoints must not change while a run starts; got {} with {} now, and {} when the settings were "
      "read, because another run has written them; start the command again",
      folder_.root.string(), text(now), text(seen)));
}

void OwnedFolder::remove_empty() const {
  std::error_code kept;
  const auto is_other = [&](const fs::directory_entry& entry) {
    return entry.path() != folder_.checkpoints();
  };
  if (!created_ || std::any_of(fs::directory_iterator(folder_.root, kept), {}, is_other)) return;
  fs::remove(folder_.checkpoints(), kept);  // fails when it is not empty
  fs::remove(folder_.root, kept);
}

}  // namespace colonnade::record
