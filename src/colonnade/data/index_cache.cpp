// See index_cache.h.
#include "colonnade/data/index_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/base/md5.h"
#include "colonnade/base/progress.h"

namespace colonnade::data {
namespace {

namespace fs = std::filesystem;

using Clock = std::chrono::steady_clock;

/// An exclusive lock on a file, held until the end of the scope or of the process. A file system
/// without locks gives none: then two processes may build the same entry, and the first rename wins.
class FileLock {
 public:
  FileLock(fs::path path, const std::string& what) : path_(std::move(path)) {
    bool told = false;
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
        if (!std::exchange(told, true)) log::info("waiting for another process that indexes {}", what);
        progress().alive();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    }
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  /// False: the file system has no locks.
  [[nodiscard]] bool held() const { return held_; }
  ~FileLock() {
    ::unlink(path_.c_str());
    ::close(fd_);
  }

 private:
  /// Whether the open file is the one under the path: who held the lock before has removed its own.
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

/// Says in its life, every `period`, that the work goes on: in a line, and ten times as often on the page of
/// progress.
class Ticker {
 public:
  Ticker(const std::string& what, std::chrono::milliseconds period)
      : thread_([&page = progress(), what, period](const std::stop_token& stop) {
          const auto begin = Clock::now();
          std::mutex mutex;
          std::condition_variable_any ended;
          std::unique_lock lock(mutex);
          for (int tick = 1; !ended.wait_for(lock, stop, period / 10, [&] { return stop.stop_requested(); });
               ++tick) {
            page.alive();
            if (tick % 10 != 0) continue;
            const std::chrono::duration<double> seconds = Clock::now() - begin;
            log::info("still indexing {}, {:.0f} s so far", what, seconds.count());
          }
        }) {}

 private:
  std::jthread thread_;
};

/// Names of an entry's files.
class EntryFiles {
 public:
  EntryFiles(const fs::path& folder, const CacheKey& key)
      : stem_((folder / (md5_hex(key.description) + "-" + key.kind)).string()) {}
  [[nodiscard]] fs::path array(const std::string& name) const { return stem_ + "-" + name + ".npy"; }
  [[nodiscard]] fs::path description() const { return stem_ + "-description.txt"; }
  [[nodiscard]] fs::path state() const { return stem_ + "-colonnade.txt"; }
  [[nodiscard]] const std::string& stem() const { return stem_; }

 private:
  std::string stem_;
};

/// Takes what Megatron wrote. Throws DataError where it cannot belong to the data.
void adopt(const EntryFiles& files, const CacheKey& key, const std::vector<std::string>& names,
           const std::vector<IntArray>& arrays) {
  if (!key.check) throw DataError("nothing says which state of the data it belongs to");
  for (const std::string& name : names)
    if (fs::last_write_time(files.array(name)) < key.changed) throw DataError("it is older than the data");
  key.check(arrays);
  log::info("index cache {}: taken over, its arrays fit the data", files.stem());
  try {
    write_file_atomically(files.state(), key.state);
  } catch (const std::exception&) {  // a folder that cannot be written: the next one checks again
  }
}

/// The entry's arrays; nothing when there is no entry or it is of no use, which a line says.
std::optional<std::vector<IntArray>> load(const EntryFiles& files, const CacheKey& key,
                                          const std::vector<std::string>& names) {
  if (!fs::exists(files.description())) return std::nullopt;
  try {
    if (read_file(files.description()) != key.description) throw DataError("it describes something else");
    std::vector<IntArray> arrays;
    for (const std::string& name : names) arrays.push_back(IntArray::map(files.array(name)));
    if (!fs::exists(files.state()))
      adopt(files, key, names, arrays);
    else if (read_file(files.state()) != key.state)
      throw DataError("the data have changed since");
    return arrays;
  } catch (const Error& error) {
    log::warning("index cache {}: is of no use and will be built again; {}", files.stem(), error.what());
    return std::nullopt;
  }
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

/// Whether nothing in `folder` was written for an hour. What goes meanwhile is not idle.
bool is_idle(const fs::path& folder) {
  try {
    auto newest = fs::last_write_time(folder);
    for (const auto& file : fs::directory_iterator(folder)) newest = std::max(newest, file.last_write_time());
    return newest < fs::file_time_type::clock::now() - std::chrono::hours(1);
  } catch (const fs::filesystem_error&) {
    return false;
  }
}

/// A folder for the files of an entry, until it has its name; removed unless it was published.
class Staged {
 public:
  /// Its name has the thread's number: two threads may build the same entry where there are no locks.
  /// `alone`: the entry's lock is held. Then what killed builds have left is removed: of this host all, of
  /// others, between which some file systems do not keep locks, what is idle.
  Staged(const EntryFiles& files, bool alone)
      : files_(files), path_(fmt::format("{}.part-{}-{}", files.stem(), host_name(), ::gettid())) {
    if (alone) remove_left();
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Staged() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;

  [[nodiscard]] const fs::path& path() const { return path_; }

  /// Writes what is not there yet, and gives all files their names: the description first goes and comes
  /// last.
  void publish(const CacheKey& key, const std::vector<std::string>& names,
               const std::vector<IntArray>& arrays) const {
    for (std::size_t i = 0; i < names.size(); ++i)
      if (const fs::path file = path_ / (names[i] + ".npy"); !fs::exists(file)) arrays[i].save(file);
    write_file_atomically(path_ / "state", key.state);
    write_file_atomically(path_ / "description", key.description);
    const fs::path folder = path_.parent_path();
    fs::remove(files_.description());
    sync_path(folder);
    for (const std::string& name : names) fs::rename(path_ / (name + ".npy"), files_.array(name));
    fs::rename(path_ / "state", files_.state());
    sync_path(folder);
    fs::rename(path_ / "description", files_.description());
    sync_path(folder);
  }

 private:
  void remove_left() const {
    const std::string any = fs::path(files_.stem()).filename().string() + ".part-",
                      here = any + host_name() + "-";
    std::error_code ignored;
    for (const auto& each : fs::directory_iterator(path_.parent_path()))
      if (const std::string name = each.path().filename().string();
          name.starts_with(here) || (name.starts_with(any) && is_idle(each.path())))
        fs::remove_all(each.path(), ignored);
  }

  EntryFiles files_;
  fs::path path_;
};

}  // namespace

std::vector<IntArray> IndexCache::get(const std::string& what, const CacheKey& key,
                                      const std::vector<std::string>& names,
                                      const std::function<std::vector<IntArray>()>& build) const {
  return get_written(what, key, names, [&build](const fs::path&) { return build(); });
}

std::vector<IntArray> IndexCache::get_written(
    const std::string& what, const CacheKey& key, const std::vector<std::string>& names,
    const std::function<std::vector<IntArray>(const fs::path& staged)>& build) const {
  if (folder_.empty()) return build({});
  const EntryFiles files(folder_, key);
  std::optional<FileLock> lock;
  std::optional<Staged> staged;
  try {
    if (auto arrays = load(files, key, names)) return *arrays;
    fs::create_directories(folder_);
    lock.emplace(files.stem() + ".lock", what);
    if (auto arrays = load(files, key, names)) return *arrays;
    staged.emplace(files, lock->held());
  } catch (const fs::filesystem_error& error) {
    log::warning(
        "index cache {}: cannot be written ({}); the indices of {} stay in memory; --data-cache-path names "
        "another folder",
        folder_.string(), error.code().message(), what);
    return build({});
  }
  const auto start = Clock::now();
  log::info("indexing {}", what);
  std::vector<IntArray> arrays = [&] {
    const Ticker ticker(what, period_);
    return build(staged->path());
  }();
  COL_CHECK(arrays.size() == names.size(), "index cache: {} arrays must be built; got {}", names.size(),
            arrays.size());
  const std::chrono::duration<double> seconds = Clock::now() - start;
  try {
    staged->publish(key, names, arrays);
    std::vector<IntArray> mapped;
    for (const std::string& name : names) mapped.push_back(IntArray::map(files.array(name)));
    log::info("indexed {} in {:.2f} s; kept in {}", what, seconds.count(), files.stem());
    return mapped;
  } catch (const std::exception& error) {
    log::warning("index cache {}: cannot be kept; the indices of {} stay in memory; {}", files.stem(), what,
                 error.what());
  }
  return arrays;
}

}  // namespace colonnade::data
