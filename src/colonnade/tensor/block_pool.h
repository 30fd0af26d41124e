// Large blocks of CPU memory, kept when they are given back: a training step asks for the same sizes again,
// and memory fresh from the system costs a fault and a cleared page for every page touched.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <unordered_map>

namespace colonnade::tensor {

/// Thread-safe. Blocks begin at a page. A block serves requests from 8/9 of its size up to its size. Lent and
/// kept blocks together never hold more than 5/4 of the most that was lent at one time: a request that finds
/// no block of its size lets the largest kept ones go first.
class BlockPool {
 public:
  /// Requests below this many bytes are better served by malloc.
  static constexpr std::size_t kSmallest = std::size_t{1} << 20;

  BlockPool() = default;
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;
  ~BlockPool();

  /// At least `bytes`, contents unknown. Throws Error when the system has no more.
  void* take(std::size_t bytes);
  void give(void* block);

  /// Bytes of the blocks lent now and kept now.
  struct Use {
    std::size_t lent = 0;
    std::size_t kept = 0;
  };
  Use use();

 private:
  void* take_kept(std::size_t bytes);
  void let_go_until(std::size_t most_kept);

  std::mutex mutex_;
  std::multimap<std::size_t, void*> kept_;
  std::unordered_map<void*, std::size_t> lent_;
  Use use_;
  std::size_t most_lent_ = 0;
};

}  // namespace colonnade::tensor
