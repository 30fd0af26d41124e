// See index_cache.h.
#include "colonnade/data/index_cache.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <stop_token>
#include <thread>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/base/md5.h"
#include "colonnade/base/progress.h"
#include "colonnade/data/unique_description.h"

namespace colonnade::data {
namespace {

namespace fs = std::filesystem;

using Clock = std::chrono::steady_clock;

/// An exclusive file lock, held until the end of the scope or of the process. On a file system without locks
/// two processes may build the same entry; the last rename wins.
class FileLock {
 public:
  FileLock(fs::path path, const std::string& what) : path_(std::move(path)) {
    bool logged = false;
    while (!is_current()) {
      if (fd_ >= 0) ::close(fd_);
      fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
      if (fd_ < 0) throw fs::filesystem_error("lock", path_, std::error_code(errno, std::generic_category()));
      while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR) continue;
        if (errno != EWOULDBLOCK) {
          held_ = false;
          return;
        }
        if (!std::exchange(logged, true)) log::info("waiting for another process that indexes {}", what);
        progress().heartbeat();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    }
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  /// False if the file system has no locks.
  [[nodiscard]] bool held() const { return held_; }
  ~FileLock() {
    ::unlink(path_.c_str());
    ::close(fd_);
  }

 private:
  /// Whether the open file is still the one at the path; the previous holder unlinks its own.
  [[nodiscard]] bool is_current() const {
    struct stat open {
    }, named{};
    return fd_ >= 0 && ::fstat(fd_, &open) == 0 && ::stat(path_.c_str(), &named) == 0 &&
           open.st_ino == named.st_ino && open.st_dev == named.st_dev;
  }

  fs::path path_;
  int fd_ = -1;
  bool held_ = true;
};

/// Reports every `period` that a build is still running: a log line, and ten times as often a heartbeat on
/// the progress page.
class BuildHeartbeat {
 public:
  BuildHeartbeat(const std::string& what, std::chrono::milliseconds period)
      : thread_([&page = progress(), what, period](const std::stop_token& stop) {
          const auto begin = Clock::now();
          std::mutex mutex;
          std::condition_variable_any stopped;
          std::unique_lock lock(mutex);
          for (int tick = 1;
               !stopped.wait_for(lock, stop, period / 10, [&] { return stop.stop_requested(); }); ++tick) {
            page.heartbeat();
            if (tick % 10 != 0) continue;
            const std::chrono::duration<double> seconds = Clock::now() - begin;
            log::info("still indexing {}, {:.0f} s so far", what, seconds.count());
          }
        }) {}

 private:
  std::jthread thread_;
};

/// File names of a cache entry.
class EntryFiles {
 public:
  EntryFiles(const fs::path& folder, const CacheKey& key)
      : stem_((folder / (md5_hex(key.description) + "-" + key.kind)).string()) {}
  [[nodiscard]] fs::path array(const std::string& name) const { return stem_ + "-" + name + ".npy"; }
  [[nodiscard]] fs::path description() const { return stem_ + "-description.txt"; }
  [[nodiscard]] fs::path fingerprints() const { return stem_ + "-colonnade.txt"; }
  [[nodiscard]] const std::string& stem() const { return stem_; }

 private:
  std::string stem_;
};

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string without_trailing_newlines(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

/// Content of an entry's -colonnade.txt, separated by empty lines: the build id of its arrays ("build" and a
/// number), then the fingerprints of all data and settings that the arrays are known to match.
class Fingerprints {
 public:
  /// Fingerprint of a new build with a unique random id.
  explicit Fingerprints(const CacheKey& key)
      : build_(fmt::format("{}{:08x}{:08x}", kBuild, std::random_device()(), std::random_device()())) {
    add(key);
  }

  /// Throws Error if the file does not exist.
  static Fingerprints read(const fs::path& file) {
    const std::string text = without_trailing_newlines(read_file(file));
    Fingerprints result;
    for (std::size_t at = 0, end = 0; end < text.size() || at == 0; at = end + 2) {
      end = std::min(text.find("\n\n", at), text.size());
      result.all_.push_back(text.substr(at, end - at));
    }
    if (!result.all_[0].starts_with(kBuild)) return result;  // written by an older version
    result.build_ = result.all_[0];
    result.all_.erase(result.all_.begin());
    if (result.all_.empty()) result.all_.emplace_back();
    return result;
  }

  [[nodiscard]] const std::string& build() const { return build_; }
  [[nodiscard]] bool contain(const CacheKey& key) const {
    return std::ranges::find(all_, fingerprint_of(key)) != all_.end();
  }
  /// Whether the settings are those of `key`, whatever the data.
  [[nodiscard]] bool have_settings_of(const CacheKey& key) const {
    return !key.settings.empty() && !all_.empty() &&
           ("\n" + all_.back()).ends_with("\n" + without_trailing_newlines(key.settings));
  }
  /// The data file that the entry was built from; "" if the file of `key` is among the known ones.
  [[nodiscard]] std::string other_file(const CacheKey& key) const {
    const std::string file = file_in(key.fingerprint);
    for (const std::string& each : all_)
      if (file_in(each) == file) return "";
    return all_.empty() || file.empty() ? "" : file_in(all_.back());
  }
  /// Appends the fingerprint of `key`; evicts the oldest one beyond the limit.
  void add(const CacheKey& key) {
    constexpr std::size_t kMost = 1024;  // copies of the data that share one cache
    if (all_.size() == kMost) all_.erase(all_.begin());
    all_.push_back(fingerprint_of(key));
  }
  [[nodiscard]] std::string text() const {
    return fmt::format("{}\n\n{}\n", build_, fmt::join(all_, "\n\n"));
  }

 private:
  static constexpr std::string_view kBuild = "build ";
  Fingerprints() = default;
  /// The path in a fingerprint's first line, "PATH N bytes, changed T"; "" if there is none.
  static std::string file_in(const std::string& fingerprint) {
    const std::string line = fingerprint.substr(0, fingerprint.find('\n'));
    const std::size_t bytes = line.rfind(" bytes, changed ");
    return bytes == std::string::npos || bytes == 0 ? "" : line.substr(0, line.rfind(' ', bytes - 1));
  }
  static std::string fingerprint_of(const CacheKey& key) {
    return without_trailing_newlines(key.fingerprint + key.settings);
  }

  std::string build_;
  std::vector<std::string> all_;
};

using Arrays = std::vector<IntArray>;

Arrays map_all(const EntryFiles& files, const std::vector<std::string>& names) {
  Arrays arrays;
  for (const std::string& name : names) arrays.push_back(IntArray::map(files.array(name)));
  return arrays;
}

/// The entry's arrays if its fingerprints contain `key`'s, without taking the lock; empty otherwise.
/// Publishing removes the description first, and renames the fingerprints after the arrays and before the new
/// description. If both files are unchanged after mapping (same build id), no rename happened in between.
std::optional<Arrays> load_current(const EntryFiles& files, const CacheKey& key,
                                   const std::vector<std::string>& names) {
  const auto build = [&]() -> std::optional<std::string> {
    if (!fs::exists(files.description()) || read_file(files.description()) != key.description)
      return std::nullopt;
    if (!fs::exists(files.fingerprints())) return std::nullopt;
    const Fingerprints known = Fingerprints::read(files.fingerprints());
    return known.contain(key) ? std::optional(known.build()) : std::nullopt;
  };
  try {
    const auto before = build();
    if (!before) return std::nullopt;
    Arrays arrays = map_all(files, names);
    if (build() == before) return arrays;
  } catch (const Error&) {  // damaged or removed in the meantime: validated under the lock
  }
  return std::nullopt;
}

/// Writes an entry's fingerprints. The caller holds its lock.
void write_fingerprints(const EntryFiles& files, const Fingerprints& known) {
  try {
    const std::string staged = fmt::format("{}.part-{}-{}", files.stem(), host_name(), ::gettid());
    write_file_atomically(staged, known.text());
    fs::rename(staged, files.fingerprints());
  } catch (const std::exception&) {  // read-only folder: the next process validates again
  }
}

/// The entry's arrays once they are validated against `key`; empty, with a log line, if the entry is missing
/// or unusable. Writes nothing unless `locked`: the caller holds the entry's lock.
std::optional<Arrays> validate(const EntryFiles& files, const CacheKey& key,
                               const std::vector<std::string>& names, bool locked) {
  if (!fs::exists(files.description())) return std::nullopt;
  bool changed = false;  // the data changed, which is no reason for a warning
  std::string other;     // the file that the entry was built from, if it is not that of `key`
  try {
    if (read_file(files.description()) != key.description) throw DataError("it describes something else");
    Arrays arrays = map_all(files, names);
    std::optional<Fingerprints> known;
    if (fs::exists(files.fingerprints())) known = Fingerprints::read(files.fingerprints());
    if (known && known->contain(key)) return locked ? arrays : load_current(files, key, names);
    changed = known.has_value();
    if (known) other = known->other_file(key);
    if (known && (!key.check || !known->have_settings_of(key))) throw DataError("its state is another");
    if (!key.check) throw DataError("nothing says which state of the data it belongs to");
    for (const std::string& name : names)
      if (!known && fs::last_write_time(files.array(name)) < key.changed) {
        changed = true;
        throw DataError("it is older than the data");
      }
    key.check(arrays);
    log::info("index cache {}: reused, its arrays match the data", files.stem());
    known ? known->add(key) : void(known.emplace(key));
    if (locked) write_fingerprints(files, *known);
    return arrays;
  } catch (const Error& error) {
    if (!other.empty())
      log::warning(
          "index cache {}: built from {} and will be rebuilt; data sets with equal relative paths share an entry "
          "and each start rebuilds it: give each its own --data-cache-path; {}",
          files.stem(), other, error.what());
    else if (changed)
      log::info("index cache {}: the data changed since and it will be rebuilt; {}", files.stem(),
                error.what());
    else
      log::warning("index cache {}: unusable and will be rebuilt; {}", files.stem(), error.what());
    return std::nullopt;
  }
}

/// MD5 of the description in `file` without paths; empty if the description does not match the hash in the
/// file's name. Each file is read once.
std::string pathless_description(const fs::path& file) {
  static std::mutex mutex;
  static std::map<std::string, std::string> known;  // by file
  const std::scoped_lock lock(mutex);
  const auto found = known.find(file.string());
  if (found != known.end()) return found->second;
  const std::string text = read_file(file), pathless = without_paths(text);
  const bool fits = !pathless.empty() && file.filename().string().starts_with(md5_hex(text));
  return known[file.string()] = fits ? md5_hex(pathless) : "";
}

/// The arrays of an entry whose description spells the same paths differently: equal fingerprint, which names
/// the files, and equal description apart from paths.
std::optional<Arrays> load_by_other_spelling(const fs::path& folder, const CacheKey& key,
                                             const std::vector<std::string>& names) {
  const std::string pathless = without_paths(key.description);
  if (pathless.empty() || key.fingerprint.empty()) return std::nullopt;
  const std::string wanted = md5_hex(pathless), end = "-" + key.kind + "-description.txt";
  std::error_code error;
  for (fs::directory_iterator at(folder, error), none; !error && at != none; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.size() != wanted.size() + end.size() || !name.ends_with(end)) continue;
    try {
      if (pathless_description(at->path()) != wanted) continue;
      CacheKey other = key;
      other.description = read_file(at->path());
      if (auto arrays = load_current(EntryFiles(folder, other), other, names)) return arrays;
    } catch (const Error&) {  // removed in the meantime
    }
  }
  return std::nullopt;
}

/// Whether nothing in `folder` was written for an hour. False if it disappears meanwhile.
bool is_stale(const fs::path& folder) {
  try {
    auto newest = fs::last_write_time(folder);
    for (const auto& file : fs::directory_iterator(folder)) newest = std::max(newest, file.last_write_time());
    return newest < fs::file_time_type::clock::now() - std::chrono::hours(1);
  } catch (const fs::filesystem_error&) {
    return false;
  }
}

/// A staging folder for the files of an entry; removed unless published.
class StagingFolder {
 public:
  /// Its name contains the thread id, since without locks two threads may build the same entry. With `locked`
  /// (the caller holds the entry's lock) the remains of killed builds are removed: all of this host, and
  /// stale ones of other hosts, across which some file systems do not enforce locks.
  StagingFolder(const EntryFiles& files, bool locked)
      : files_(files), path_(fmt::format("{}.part-{}-{}", files.stem(), host_name(), ::gettid())) {
    if (locked) remove_leftovers();
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~StagingFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  StagingFolder(const StagingFolder&) = delete;
  StagingFolder& operator=(const StagingFolder&) = delete;

  [[nodiscard]] const fs::path& path() const { return path_; }

  /// Saves the arrays that `build` has not written itself, then renames all files to their final names. The
  /// old description is removed first and the new one renamed last.
  void publish(const CacheKey& key, const std::vector<std::string>& names,
               const std::vector<IntArray>& arrays) const {
    for (std::size_t i = 0; i < names.size(); ++i)
      if (const fs::path file = path_ / (names[i] + ".npy"); !fs::exists(file)) arrays[i].save(file);
    write_file_atomically(path_ / "state", Fingerprints(key).text());
    write_file_atomically(path_ / "description", key.description);
    const fs::path folder = path_.parent_path();
    fs::remove(files_.description());
    sync_path(folder);
    for (const std::string& name : names) fs::rename(path_ / (name + ".npy"), files_.array(name));
    fs::rename(path_ / "state", files_.fingerprints());
    sync_path(folder);
    fs::rename(path_ / "description", files_.description());
    sync_path(folder);
  }

 private:
  void remove_leftovers() const {
    const std::string any = fs::path(files_.stem()).filename().string() + ".part-",
                      here = any + host_name() + "-";
    std::error_code ignored;
    for (const auto& each : fs::directory_iterator(path_.parent_path()))
      if (const std::string name = each.path().filename().string();
          name.starts_with(here) || (name.starts_with(any) && is_stale(each.path())))
        fs::remove_all(each.path(), ignored);
  }

  EntryFiles files_;
  fs::path path_;
};

}  // namespace

std::string file_fingerprint(const fs::path& path) {
  return fmt::format("{} {} bytes, changed {}\n", fs::canonical(path).string(), fs::file_size(path),
                     fs::last_write_time(path).time_since_epoch().count());
}

std::vector<IntArray> IndexCache::get(const std::string& what, const CacheKey& key,
                                      const std::vector<std::string>& names,
                                      const std::function<std::vector<IntArray>()>& build) const {
  return get_streamed(what, key, names, [&build](const fs::path&) { return build(); });
}

std::vector<IntArray> IndexCache::get_streamed(
    const std::string& what, const CacheKey& key, const std::vector<std::string>& names,
    const std::function<std::vector<IntArray>(const fs::path& staged)>& build) const {
  const auto build_in_memory = [&] {
    const BuildHeartbeat heartbeat(what, period_);
    return build({});
  };
  if (folder_.empty()) return build_in_memory();
  const EntryFiles files(folder_, key);
  std::optional<FileLock> lock;
  std::optional<StagingFolder> staged;
  const auto find_current = [&] {
    auto arrays = load_current(files, key, names);
    return arrays ? arrays : load_by_other_spelling(folder_, key, names);
  };
  const auto validate_unlocked = [&]() -> std::optional<Arrays> {
    try {
      return validate(files, key, names, false);
    } catch (const fs::filesystem_error&) {  // unreadable as well
      return std::nullopt;
    }
  };
  try {
    if (auto arrays = find_current()) return *arrays;
    fs::create_directories(folder_);
    lock.emplace(files.stem() + ".lock", what);
    if (auto arrays = find_current()) return *arrays;
    if (auto arrays = validate(files, key, names, lock->held())) return *arrays;
    staged.emplace(files, lock->held());
  } catch (const fs::filesystem_error& error) {
    if (!lock)
      if (auto arrays = validate_unlocked()) return *arrays;
    log::warning(
        "index cache {} must be writable; got {}; the indices of {} stay in memory; name another folder with "
        "--data-cache-path",
        folder_.string(), error.code().message(), what);
    return build_in_memory();
  }
  const auto start = Clock::now();
  log::info("indexing {}", what);
  std::vector<IntArray> arrays = [&] {
    const BuildHeartbeat heartbeat(what, period_);
    return build(staged->path());
  }();
  COL_CHECK(arrays.size() == names.size(), "index cache: {} arrays must be built; got {}", names.size(),
            arrays.size());
  const std::chrono::duration<double> seconds = Clock::now() - start;
  try {
    staged->publish(key, names, arrays);
    std::vector<IntArray> mapped = map_all(files, names);
    log::info("indexed {} in {:.2f} s; cached in {}", what, seconds.count(), files.stem());
    return mapped;
  } catch (const std::exception& error) {
    log::warning("index cache {}: not written; the indices of {} stay in memory; {}", files.stem(), what,
                 error.what());
  }
  return arrays;
}

}  // namespace colonnade::data
