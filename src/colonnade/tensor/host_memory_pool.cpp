// See host_memory_pool.h.
#include "colonnade/tensor/host_memory_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

#include "colonnade/base/error.h"

namespace colonnade::tensor {
namespace {

constexpr std::size_t kPage = 4096;

/// `bytes` of fresh memory, or null. Does not request huge pages: on virtual machines whose host reclaims
/// unused memory, their first touch costs more than they save later.
void* map_pages(std::size_t bytes) {
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mapped == MAP_FAILED ? nullptr : mapped;
}

}  // namespace

HostMemoryPool::~HostMemoryPool() { trim_cache(0); }

void* HostMemoryPool::allocate(std::size_t bytes) {
  bytes = (std::max(bytes, kPage) + kPage - 1) / kPage * kPage;
  const std::lock_guard lock(mutex_);
  void* block = take_cached(bytes);
  if (block == nullptr) {
    const std::size_t most = std::max(peak_allocated_, use_.allocated + bytes);
    const std::size_t limit = most + most / 4;
    trim_cache(limit - use_.allocated - bytes);
    block = map_pages(bytes);
    if (block == nullptr) {
      trim_cache(0);
      block = map_pages(bytes);
    }
    if (block == nullptr)
      throw Error(
          fmt::format("memory must be sufficient for {} more bytes; got {} bytes in use; use a smaller model "
                      "or micro-batch per rank, or a machine with more memory",
                      bytes, use_.allocated));
    allocated_[block] = bytes;
    use_.allocated += bytes;
  }
  peak_allocated_ = std::max(peak_allocated_, use_.allocated);
  return block;
}

void* HostMemoryPool::take_cached(std::size_t bytes) {
  const auto found = cached_.lower_bound(bytes);
  if (found == cached_.end() || found->first > bytes + bytes / 8) return nullptr;
  const auto [size, block] = *found;
  cached_.erase(found);
  allocated_[block] = size;
  use_.cached -= size;
  use_.allocated += size;
  return block;
}

void HostMemoryPool::free(void* block) {
  const std::lock_guard lock(mutex_);
  const auto found = allocated_.find(block);
  COL_CHECK(found != allocated_.end(), "a block must be freed to the pool that allocated it; got another");
  cached_.emplace(found->second, block);
  use_.allocated -= found->second;
  use_.cached += found->second;
  allocated_.erase(found);
}

HostMemoryPool::Use HostMemoryPool::use() {
  const std::lock_guard lock(mutex_);
  return use_;
}

void HostMemoryPool::trim_cache(std::size_t max_cached) {
  while (use_.cached > max_cached) {
    const auto largest = std::prev(cached_.end());
    ::munmap(largest->second, largest->first);
    use_.cached -= largest->first;
    cached_.erase(largest);
  }
}

}  // namespace colonnade::tensor
