// See checksum.h.
#include "colonnade/checkpoint/checksum.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "colonnade/base/error.h"
#include "colonnade/base/progress.h"

namespace colonnade::checkpoint {

struct Checksum::State {
  XXH3_state_t hash;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->hash); }
Checksum::~Checksum() = default;
void Checksum::update(const void* data, std::size_t bytes) {
  XXH3_128bits_update(&state_->hash, data, bytes);
}

std::string Checksum::hex() const {
  const XXH128_hash_t value = XXH3_128bits_digest(&state_->hash);
  return fmt::format("{:016x}{:016x}", value.high64, value.low64);
}

std::string checksum_of(std::string_view text) {
  Checksum sum;
  sum.update(text.data(), text.size());
  return sum.hex();
}

// Uses read instead of a memory map: a shrinking file or a bad disk is then an error, not a SIGBUS.
FileChecksum file_checksum(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw DataError(fmt::format("{}: cannot be opened; {}", path.string(), std::strerror(errno)));
  ::posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
  std::vector<char> chunk(std::size_t{1} << 20);
  Checksum sum;
  FileChecksum result;
  for (;;) {
    const ssize_t n = ::read(fd, chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    const int reason = errno;
    if (n <= 0) ::close(fd);
    if (n < 0) throw DataError(fmt::format("{}: cannot be read; {}", path.string(), std::strerror(reason)));
    if (n == 0) break;
    progress().heartbeat();
    sum.update(chunk.data(), static_cast<std::size_t>(n));
    result.bytes += static_cast<std::uint64_t>(n);
  }
  result.xxh3_128 = sum.hex();
  return result;
}

}  // namespace colonnade::checkpoint
