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
#include "colonnade/data/dataset_names.h"

namespace colonnade::data {
namespace {

namespace fs = std::filesystem;

using Clock = std::chrono::steady_clock;

/// An exclusive lock on a file, held until the end of the scope or of the process. A file system
/// without locks gives none: then two processes may build the same entry, and the last rename wins.
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

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string without_end(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

/// What the state file of an entry says, apart by empty lines: which build its arrays are of ("build" and a
/// number), and the states of data and settings that they are known to fit.
class States {
 public:
  /// Of a new build, which no other is mistaken for.
  explicit States(const CacheKey& key)
      : build_(fmt::format("{}{:08x}{:08x}", kBuild, std::random_device()(), std::random_device()())) {
    add(key);
  }

  /// Throws Error where there is no such file.
  static States read(const fs::path& file) {
    const std::string text = without_end(read_file(file));
    States states;
    for (std::size_t at = 0, end = 0; end < text.size() || at == 0; at = end + 2) {
      end = std::min(text.find("\n\n", at), text.size());
      states.states_.push_back(text.substr(at, end - at));
    }
    if (!states.states_[0].starts_with(kBuild)) return states;  // of an older version
    states.build_ = states.states_[0];
    states.states_.erase(states.states_.begin());
    if (states.states_.empty()) states.states_.emplace_back();
    return states;
  }

  [[nodiscard]] const std::string& build() const { return build_; }
  [[nodiscard]] bool say(const CacheKey& key) const {
    return std::ranges::find(states_, state_of(key)) != states_.end();
  }
  /// Whether the settings are those of `key`, whatever the data.
  [[nodiscard]] bool have_settings_of(const CacheKey& key) const {
    return !key.settings.empty() && !states_.empty() &&
           ("\n" + states_.back()).ends_with("\n" + without_end(key.settings));
  }
  /// A file that the entry fits, where none of them is that of `key`; else "".
  [[nodiscard]] std::string other_file(const CacheKey& key) const {
    const std::string file = file_in(key.state);
    for (const std::string& state : states_)
      if (file_in(state) == file) return "";
    return states_.empty() || file.empty() ? "" : file_in(states_.back());
  }
  /// The oldest one goes where there are too many.
  void add(const CacheKey& key) {
    constexpr std::size_t kMost = 1024;  // copies of data that have one cache
    if (states_.size() == kMost) states_.erase(states_.begin());
    states_.push_back(state_of(key));
  }
  [[nodiscard]] std::string text() const {
    return fmt::format("{}\n\n{}\n", build_, fmt::join(states_, "\n\n"));
  }

 private:
  static constexpr std::string_view kBuild = "build ";
  States() = default;
  /// The path in a state's first line, "PATH N bytes, changed T"; "" where it is none.
  static std::string file_in(const std::string& state) {
    const std::string line = state.substr(0, state.find('\n'));
    const std::size_t bytes = line.rfind(" bytes, changed ");
    return bytes == std::string::npos || bytes == 0 ? "" : line.substr(0, line.rfind(' ', bytes - 1));
  }
  static std::string state_of(const CacheKey& key) { return without_end(key.state + key.settings); }

  std::string build_;
  std::vector<std::string> states_;
};

using Arrays = std::vector<IntArray>;

Arrays map_all(const EntryFiles& files, const std::vector<std::string>& names) {
  Arrays arrays;
  for (const std::string& name : names) arrays.push_back(IntArray::map(files.array(name)));
  return arrays;
}

/// The entry's arrays where it has the state of `key`; nothing else, which needs the lock. Needs none itself:
/// who publishes removes the description first, and renames the state after the arrays and before the next
/// description. Where both are there after mapping, and of the same build as before, nothing was renamed.
std::optional<Arrays> load_ours(const EntryFiles& files, const CacheKey& key,
                                const std::vector<std::string>& names) {
  const auto build = [&]() -> std::optional<std::string> {
    if (!fs::exists(files.description()) || read_file(files.description()) != key.description)
      return std::nullopt;
    if (!fs::exists(files.state())) return std::nullopt;
    const States states = States::read(files.state());
    return states.say(key) ? std::optional(states.build()) : std::nullopt;
  };
  try {
    const auto before = build();
    if (!before) return std::nullopt;
    Arrays arrays = map_all(files, names);
    if (build() == before) return arrays;
  } catch (const Error&) {  // damaged, or taken away meanwhile: it is judged under the lock
  }
  return std::nullopt;
}

/// Gives an entry its states. Its lock is held.
void write_states(const EntryFiles& files, const States& states) {
  try {
    const std::string staged = fmt::format("{}.part-{}-{}", files.stem(), host_name(), ::gettid());
    write_file_atomically(staged, states.text());
    fs::rename(staged, files.state());
  } catch (const std::exception&) {  // a folder that cannot be written: the next one checks again
  }
}

/// The entry's arrays, once they are known to be those of `key`; nothing when there is no entry or it is of
/// no use, which a line says. `alone`: its lock is held; else nothing is written.
std::optional<Arrays> judge(const EntryFiles& files, const CacheKey& key,
                            const std::vector<std::string>& names, bool alone) {
  if (!fs::exists(files.description())) return std::nullopt;
  bool changed = false;  // the data, which is nothing to be warned of
  std::string other;     // what the entry was made of, where it is not the file of `key`
  try {
    if (read_file(files.description()) != key.description) throw DataError("it describes something else");
    Arrays arrays = map_all(files, names);
    std::optional<States> states;
    if (fs::exists(files.state())) states = States::read(files.state());
    if (states && states->say(key)) return alone ? arrays : load_ours(files, key, names);
    changed = states.has_value();
    if (states) other = states->other_file(key);
    if (states && (!key.check || !states->have_settings_of(key))) throw DataError("its state is another");
    if (!key.check) throw DataError("nothing says which state of the data it belongs to");
    for (const std::string& name : names)
      if (!states && fs::last_write_time(files.array(name)) < key.changed) {
        changed = true;
        throw DataError("it is older than the data");
      }
    key.check(arrays);
    log::info("index cache {}: taken over, its arrays fit the data", files.stem());
    states ? states->add(key) : void(states.emplace(key));
    if (alone) write_states(files, *states);
    return arrays;
  } catch (const Error& error) {
    if (!other.empty())
      log::warning(
          "index cache {}: it was made of {} and will be built again; data of equal relative paths share an "
          "entry, and those that differ build it at every start: give each its own --data-cache-path; {}",
          files.stem(), other, error.what());
    else if (changed)
      log::info("index cache {}: the data have changed since and it will be built again; {}", files.stem(),
                error.what());
    else
      log::warning("index cache {}: is of no use and will be built again; {}", files.stem(), error.what());
    return std::nullopt;
  }
}

/// The description in `file` without paths, as MD5; empty for one that does not belong to its name. Each is
/// read once: the name is the hash of the text.
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

/// The arrays of an entry that other words for the same paths name: its state, which names the files, is that
/// of `key`, and but for paths so is its description.
std::optional<Arrays> load_of_other_spelling(const fs::path& folder, const CacheKey& key,
                                             const std::vector<std::string>& names) {
  const std::string pathless = without_paths(key.description);
  if (pathless.empty() || key.state.empty()) return std::nullopt;
  const std::string wanted = md5_hex(pathless), end = "-" + key.kind + "-description.txt";
  std::error_code error;
  for (fs::directory_iterator at(folder, error), none; !error && at != none; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.size() != wanted.size() + end.size() || !name.ends_with(end)) continue;
    try {
      if (pathless_description(at->path()) != wanted) continue;
      CacheKey other = key;
      other.description = read_file(at->path());
      if (auto arrays = load_ours(EntryFiles(folder, other), other, names)) return arrays;
    } catch (const Error&) {  // taken away meanwhile
    }
  }
  return std::nullopt;
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
    write_file_atomically(path_ / "state", States(key).text());
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
  const auto find_ours = [&] {
    auto arrays = load_ours(files, key, names);
    return arrays ? arrays : load_of_other_spelling(folder_, key, names);
  };
  const auto judge_unlocked = [&]() -> std::optional<Arrays> {
    try {
      return judge(files, key, names, false);
    } catch (const fs::filesystem_error&) {  // it cannot be read either
      return std::nullopt;
    }
  };
  try {
    if (auto arrays = find_ours()) return *arrays;
    fs::create_directories(folder_);
    lock.emplace(files.stem() + ".lock", what);
    if (auto arrays = find_ours()) return *arrays;
    if (auto arrays = judge(files, key, names, lock->held())) return *arrays;
    staged.emplace(files, lock->held());
  } catch (const fs::filesystem_error& error) {
    if (!lock)
      if (auto arrays = judge_unlocked()) return *arrays;
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
    std::vector<IntArray> mapped = map_all(files, names);
    log::info("indexed {} in {:.2f} s; kept in {}", what, seconds.count(), files.stem());
    return mapped;
  } catch (const std::exception& error) {
    log::warning("index cache {}: cannot be kept; the indices of {} stay in memory; {}", files.stem(), what,
                 error.what());
  }
  return arrays;
}

}  // namespace colonnade::data
