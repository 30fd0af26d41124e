// See shard_index.h.
#include "colonnade/images/shard_index.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <thread>

#include "colonnade/base/error.h"
#include "colonnade/images/tar.h"

namespace colonnade::images {

struct ShardFiles::Open {
  explicit Open(const std::filesystem::path& path) : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd < 0)
      throw DataError(fmt::format("{}: a shard must be a readable file; got {}; check the path",
                                  path.string(), std::strerror(errno)));
  }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;
  ~Open() { ::close(fd); }
  int fd;
};

ShardFiles::ShardFiles(const std::filesystem::path& root, const std::vector<std::string>& names) {
  for (const std::string& name : names) paths_.push_back(root / name);
}

std::shared_ptr<const ShardFiles::Open> ShardFiles::open(std::int64_t shard) const {
  const std::lock_guard lock(mutex_);
  if (const auto found = open_.find(shard); found != open_.end()) {
    used_.splice(used_.begin(), used_, found->second.second);
    return found->second.first;
  }
  auto made = std::make_shared<const Open>(path(shard));
  used_.push_front(shard);
  open_.emplace(shard, std::pair(made, used_.begin()));
  if (open_.size() > kMostOpen) {  // concurrent readers keep the file open
    open_.erase(used_.back());
    used_.pop_back();
  }
  return made;
}

std::size_t ShardFiles::read(std::int64_t shard, std::int64_t offset, std::span<char> out) const {
  const auto file = open(shard);
  std::size_t done = 0;
  while (done < out.size()) {
    const ssize_t got =
        ::pread(file->fd, out.data() + done, out.size() - done, offset + static_cast<std::int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw Error(fmt::format("{} must be readable; got {}; check its permissions, disk or network",
                              path(shard).string(), std::strerror(errno)));
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

std::int64_t ShardFiles::size(std::int64_t shard) const {
  struct stat about {};
  if (::fstat(open(shard)->fd, &about) != 0)
    throw Error(fmt::format("{} must have a known size; got {}; check its permissions, disk or network",
                            path(shard).string(), std::strerror(errno)));
  return about.st_size;
}

std::pair<std::string_view, std::string_view> split_name(std::string_view name) {
  const std::size_t slash = name.rfind('/'), begin = slash == std::string_view::npos ? 0 : slash + 1;
  const std::size_t dot = name.find('.', begin);
  if (dot == std::string_view::npos || dot == begin) return {};
  if (name.starts_with("__")) {
    const std::string_view first = name.substr(0, name.find('/'));
    if (first.size() > 4 && first.ends_with("__")) return {};
  }
  return {name.substr(0, dot), name.substr(dot + 1)};
}

namespace {

/// Contents of one shard.
struct Scan {
  std::vector<std::int64_t> samples;  // shard, offset, size
  std::int64_t found = 0;             // samples, including excluded ones
  std::int64_t unused = 0, links = 0;
  std::int64_t broken_at = -1;
};

/// A sample is complete when the key changes; it ends with its last member.
Scan scan(const ShardSet& set, const ShardFiles& files, std::int64_t shard, OnError on_error) {
  constexpr std::size_t kRead = 2048;  // a header is 512 bytes; those of long names follow it
  const std::string& name = set.names[static_cast<std::size_t>(shard)];
  std::string window;
  std::int64_t window_at = 0;
  const auto read = [&](std::int64_t offset, std::span<char> out) {
    if (out.size() > kRead) return files.read(shard, offset, out);
    const auto inside = [&] {
      return offset >= window_at && offset + static_cast<std::int64_t>(out.size()) <=
                                        window_at + static_cast<std::int64_t>(window.size());
    };
    if (!inside()) {
      window.resize(kRead);
      window_at = offset;
      window.resize(files.read(shard, offset, window));
    }
    const std::size_t count = inside() ? out.size() : std::min(out.size(), window.size());
    std::memcpy(out.data(), window.data() + (offset - window_at), count);
    return count;
  };
  Scan found;
  std::string key;
  std::int64_t begin = 0, end = 0;
  const auto finish = [&] {
    if (key.empty()) return;
    ++found.found;
    if (set.excluded.empty() || !set.excluded.contains(name + "/" + key))
      found.samples.insert(found.samples.end(), {shard, begin, end - begin});
    key.clear();
  };
  TarMember member;
  try {
    TarReader tar(files.path(shard).string(), 0, files.size(shard), true, read);
    while (tar.next(member)) {
      found.links += static_cast<std::int64_t>(member.link);
      if (!member.regular) continue;
      const auto parts = split_name(member.name);
      if (parts.first.empty()) {
        ++found.unused;
        continue;
      }
      if (parts.first != key) {
        finish();
        key = parts.first;
        begin = member.header;
      }
      end = member.end;
    }
    finish();
  } catch (const DataError&) {
    if (on_error == OnError::kStop) throw;
    found.broken_at = key.empty() ? end : begin;  // the last sample may be incomplete
  }
  return found;
}

/// Runs scan() on all shards in parallel; rethrows the error of the first damaged shard.
std::vector<Scan> scan_all(const ShardSet& set, const ShardFiles& files, OnError on_error, int threads) {
  const auto shards = static_cast<std::size_t>(files.count());
  std::vector<Scan> scans(shards);
  std::vector<std::exception_ptr> errors(shards);
  std::atomic<std::size_t> next{0};
  {
    std::vector<std::jthread> workers;
    for (std::size_t i = 0; i < std::min<std::size_t>(static_cast<std::size_t>(std::max(threads, 1)), shards);
         ++i)
      workers.emplace_back([&] {
        for (std::size_t shard = next++; shard < shards; shard = next++) {
          try {
            scans[shard] = scan(set, files, static_cast<std::int64_t>(shard), on_error);
          } catch (...) {
            errors[shard] = std::current_exception();
          }
        }
      });
  }
  for (const std::exception_ptr& error : errors)
    if (error != nullptr) std::rethrow_exception(error);
  return scans;
}

std::vector<data::IntArray> build(const ShardSet& set, const ShardFiles& files, OnError on_error,
                                  int threads) {
  const std::vector<Scan> scans = scan_all(set, files, on_error, threads);
  std::vector<std::int64_t> samples, broken, unused{0, 0};
  for (std::size_t i = 0; i < scans.size(); ++i) {
    const Scan& scan = scans[i];
    if (scan.broken_at < 0 && set.counts[i] >= 0 && set.counts[i] != scan.found)
      throw DataError(fmt::format(
          "{} must hold as many samples as .nv-meta lists, {}; got {}; run `energon prepare` again",
          files.path(static_cast<std::int64_t>(i)).string(), set.counts[i], scan.found));
    samples.insert(samples.end(), scan.samples.begin(), scan.samples.end());
    if (scan.broken_at >= 0) broken.insert(broken.end(), {static_cast<std::int64_t>(i), scan.broken_at});
    unused[0] += scan.unused;
    unused[1] += scan.links;
  }
  if (samples.empty())
    throw DataError(fmt::format(
        "{}: shards must hold samples, files KEY.PART; got none in {} shards, of {} files and {} links{}; check how "
        "they were created",
        files.path(0).string(), files.count(), unused[0], unused[1],
        broken.empty() ? "" : fmt::format(", and {} are truncated or damaged", broken.size() / 2)));
  return {data::IntArray(std::move(samples), 3), data::IntArray(std::move(broken), 2),
          data::IntArray(std::move(unused))};
}

}  // namespace

ShardIndex index_shards(const ShardSet& set, const ShardFiles& files, OnError on_error, int threads,
                        const data::IndexCache& cache) {
  std::string description = fmt::format("samples of tar shards, version 2, {}\n", on_error == OnError::kStop);
  for (std::int64_t i = 0; i < files.count(); ++i) {
    if (!std::filesystem::is_regular_file(files.path(i)))
      throw DataError(fmt::format("{}: a shard must be a regular file; got none; check the path",
                                  files.path(i).string()));
    description += data::file_fingerprint(files.path(i));
  }
  for (const std::int64_t count : set.counts) description += fmt::format("{} ", count);
  for (const std::string& name : set.excluded) description += "\n-" + name;
  const std::vector<data::IntArray> arrays =
      cache.get(fmt::format("{} shards", files.count()), {.kind = "shards", .description = description},
                {"samples", "broken", "unused"}, [&] { return build(set, files, on_error, threads); });
  return {arrays[0], arrays[1], arrays[2]};
}

}  // namespace colonnade::images
