// See counting_allocator.h.
#include "colonnade/tensor/counting_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/alignment.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "colonnade/tensor/block_pool.h"

namespace colonnade::tensor {
namespace {

struct Counter {
  std::atomic<std::int64_t> now{0};
  std::atomic<std::int64_t> peak{0};

  void add(std::int64_t bytes) {
    const std::int64_t total = now.fetch_add(bytes) + bytes;
    std::int64_t seen = peak.load();
    while (total > seen && !peak.compare_exchange_weak(seen, total)) {
    }
  }
};

// Reached by the deleters of tensors that may outlive everything else.
// NOLINTBEGIN(*-non-const-global-variables)
Counter& cpu_counter() {
  static auto* const one = new Counter;
  return *one;
}
Counter& meta_counter() {
  static auto* const one = new Counter;
  return *one;
}
Counter& counter_of(at::Device device) { return device.is_cpu() ? cpu_counter() : meta_counter(); }

bool counted_here(at::Device device) { return device.is_cpu() || device.is_meta(); }

/// Large tensors lie in blocks that are kept for the next step. Under AddressSanitizer nothing is kept, so
/// that it sees who uses a freed tensor.
#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t kPooled = SIZE_MAX;
#else
constexpr std::size_t kPooled = BlockPool::kSmallest;
#endif

BlockPool& pool() {
  static auto* const one = new BlockPool;
  return *one;
}
// NOLINTEND(*-non-const-global-variables)

class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* inner) : inner_(inner) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    const at::Device cpu(at::kCPU);
    if (bytes == 0) return {nullptr, nullptr, &release, cpu};
    const std::size_t whole = bytes + kHead;
    auto* head = static_cast<std::byte*>(whole < kPooled ? inner_->raw_allocate(whole) : pool().take(whole));
    new (head) Head{inner_, static_cast<std::int64_t>(bytes)};
    cpu_counter().add(static_cast<std::int64_t>(bytes));
    void* data = head + kHead;
    return {data, data, &release, cpu};
  }
  /// LibTorch's own kernels ask for memory by plain pointers; those must be what `release` takes.
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    inner_->copy_data(to, from, bytes);
  }

 private:
  /// Lies in front of the memory handed out, whose alignment it keeps.
  struct Head {
    c10::Allocator* inner;
    std::int64_t bytes;
  };
  static constexpr std::size_t kHead = 64;
  static_assert(sizeof(Head) <= kHead && c10::gAlignment <= kHead);

  static void release(void* data) {
    if (data == nullptr) return;
    std::byte* head = static_cast<std::byte*>(data) - kHead;
    const Head known = *reinterpret_cast<Head*>(head);
    cpu_counter().now -= known.bytes;
    if (static_cast<std::size_t>(known.bytes) + kHead < kPooled)
      known.inner->raw_deallocate(head);
    else
      pool().give(head);
  }
  c10::Allocator* inner_;
};

/// Hands out no memory; the size travels with the storage.
class CountingMetaAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    const at::Device meta(at::kMeta);
    if (bytes == 0) return {nullptr, nullptr, &release, meta};
    meta_counter().add(static_cast<std::int64_t>(bytes));
    return {nullptr, new std::int64_t(static_cast<std::int64_t>(bytes)), &release, meta};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void*, const void*, std::size_t) const override {}

 private:
  static void release(void* size) {
    if (size == nullptr) return;
    meta_counter().now -= *static_cast<std::int64_t*>(size);
    delete static_cast<std::int64_t*>(size);
  }
};

}  // namespace

void count_cpu_memory() {
  static CountingAllocator allocator(c10::GetCPUAllocator());
  c10::SetCPUAllocator(&allocator, /*priority=*/1);
}

void count_meta_memory() {
  static CountingMetaAllocator allocator;
  c10::SetAllocator(at::kMeta, &allocator, /*priority=*/1);
}

MemoryUse memory_use(at::Device device) {
  if (counted_here(device)) {
    const Counter& counter = counter_of(device);
    return {static_cast<std::uint64_t>(counter.now.load()), static_cast<std::uint64_t>(counter.peak.load())};
  }
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto bytes =
      c10::getDeviceAllocator(device.type())->getDeviceStats(device.index()).allocated_bytes[kAll];
  return {static_cast<std::uint64_t>(bytes.current), static_cast<std::uint64_t>(bytes.peak)};
}

void reset_peak(at::Device device) {
  if (counted_here(device))
    counter_of(device).peak = counter_of(device).now.load();
  else
    c10::getDeviceAllocator(device.type())->resetPeakStats(device.index());
}

std::uint64_t take_peak(at::Device device) {
  const std::uint64_t peak = memory_use(device).peak;
  reset_peak(device);
  return peak;
}

}  // namespace colonnade::tensor
