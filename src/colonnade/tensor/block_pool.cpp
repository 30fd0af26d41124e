// See block_pool.h.
#include "colonnade/tensor/block_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

#include "colonnade/base/error.h"

namespace colonnade::tensor {
namespace {

constexpr std::size_t kPage = 4096;

/// `bytes` of fresh memory, or null. Huge pages are not asked for: on virtual machines whose host takes
/// unused memory back, their first touch costs more than they save later.
void* from_system(std::size_t bytes) {
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mapped == MAP_FAILED ? nullptr : mapped;
}

}  // namespace

BlockPool::~BlockPool() { let_go_until(0); }

void* BlockPool::take(std::size_t bytes) {
  bytes = (std::max(bytes, kPage) + kPage - 1) / kPage * kPage;
  const std::lock_guard lock(mutex_);
  void* block = take_kept(bytes);
  if (block == nullptr) {
    const std::size_t most = std::max(most_lent_, use_.lent + bytes);
    const std::size_t limit = most + most / 4;
    let_go_until(limit - use_.lent - bytes);
    block = from_system(bytes);
    if (block == nullptr) {
      let_go_until(0);
      block = from_system(bytes);
    }
    if (block == nullptr)
      throw Error(
          fmt::format("memory: the system must give {} bytes; got none beside {} in use; use a smaller model "
                      "or micro-batch per rank, or a machine with more memory",
                      bytes, use_.lent));
    lent_[block] = bytes;
    use_.lent += bytes;
  }
  most_lent_ = std::max(most_lent_, use_.lent);
  return block;
}

void* BlockPool::take_kept(std::size_t bytes) {
  const auto found = kept_.lower_bound(bytes);
  if (found == kept_.end() || found->first > bytes + bytes / 8) return nullptr;
  const auto [size, block] = *found;
  kept_.erase(found);
  lent_[block] = size;
  use_.kept -= size;
  use_.lent += size;
  return block;
}

void BlockPool::give(void* block) {
  const std::lock_guard lock(mutex_);
  const auto found = lent_.find(block);
  COL_CHECK(found != lent_.end(), "memory: a block must come from the pool it is given back to; got another");
  kept_.emplace(found->second, block);
  use_.lent -= found->second;
  use_.kept += found->second;
  lent_.erase(found);
}

BlockPool::Use BlockPool::use() {
  const std::lock_guard lock(mutex_);
  return use_;
}

void BlockPool::let_go_until(std::size_t most_kept) {
  while (use_.kept > most_kept) {
    const auto largest = std::prev(kept_.end());
    ::munmap(largest->second, largest->first);
    use_.kept -= largest->first;
    kept_.erase(largest);
  }
}

}  // namespace colonnade::tensor
