// Caching allocator for large CPU blocks: training steps request the same sizes again, and fresh memory costs
// a page fault and a cleared page for every page touched.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <unordered_map>

namespace colonnade::tensor {

/// Thread-safe. Blocks are page-aligned. A cached block serves requests from 8/9 of its size up to its size.
/// Allocated and cached bytes together never exceed 5/4 of the peak of allocated bytes: a request without a
/// fitting block first frees the largest cached blocks.
class HostMemoryPool {
 public:
  /// Minimum request in bytes; malloc serves smaller ones better.
  static constexpr std::size_t kMinBytes = std::size_t{1} << 20;

  HostMemoryPool() = default;
  HostMemoryPool(const HostMemoryPool&) = delete;
  HostMemoryPool& operator=(const HostMemoryPool&) = delete;
  ~HostMemoryPool();

  /// Allocates at least `bytes` of uninitialized memory. Throws Error if the system is out of memory.
  void* allocate(std::size_t bytes);
  void free(void* block);

  /// Current bytes in allocated and in cached blocks.
  struct Use {
    std::size_t allocated = 0;
    std::size_t cached = 0;
  };
  Use use();

 private:
  void* take_cached(std::size_t bytes);
  void trim_cache(std::size_t max_cached);

  std::mutex mutex_;
  std::multimap<std::size_t, void*> cached_;
  std::unordered_map<void*, std::size_t> allocated_;
  Use use_;
  std::size_t peak_allocated_ = 0;
};

}  // namespace colonnade::tensor
