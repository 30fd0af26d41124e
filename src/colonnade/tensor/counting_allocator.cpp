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

#include "colonnade/tensor/host_memory_pool.h"

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

// Never destroyed: the deleters of tensors that outlive static objects use them.
// NOLINTBEGIN(*-non-const-global-variables)
Counter& cpu_counter() {
  static auto* const instance = new Counter;
  return *instance;
}
Counter& meta_counter() {
  static auto* const instance = new Counter;
  return *instance;
}
Counter& counter_of(at::Device device) { return device.is_cpu() ? cpu_counter() : meta_counter(); }

bool has_counter(at::Device device) { return device.is_cpu() || device.is_meta(); }

/// Minimum size for pooled tensors. AddressSanitizer builds pool nothing, so that uses after free are
/// detected.
#ifdef __SANITIZE_ADDRESS__
constexpr std::size_t kMinPooled = SIZE_MAX;
#else
constexpr std::size_t kMinPooled = HostMemoryPool::kMinBytes;
#endif

HostMemoryPool& pool() {
  static auto* const instance = new HostMemoryPool;
  return *instance;
}
// NOLINTEND(*-non-const-global-variables)

class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* inner) : inner_(inner) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    const at::Device cpu(at::kCPU);
    if (bytes == 0) return {nullptr, nullptr, &release, cpu};
    const std::size_t total = bytes + kHeaderBytes;
    auto* head =
        static_cast<std::byte*>(total < kMinPooled ? inner_->raw_allocate(total) : pool().allocate(total));
    new (head) Header{inner_, static_cast<std::int64_t>(bytes)};
    cpu_counter().add(static_cast<std::int64_t>(bytes));
    void* data = head + kHeaderBytes;
    return {data, data, &release, cpu};
  }
  /// LibTorch's kernels allocate through raw pointers, which `release` must accept.
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    inner_->copy_data(to, from, bytes);
  }

 private:
  /// Header before the returned memory; preserves its alignment.
  struct Header {
    c10::Allocator* inner;
    std::int64_t bytes;
  };
  static constexpr std::size_t kHeaderBytes = 64;
  static_assert(sizeof(Header) <= kHeaderBytes && c10::gAlignment <= kHeaderBytes);

  static void release(void* data) {
    if (data == nullptr) return;
    std::byte* head = static_cast<std::byte*>(data) - kHeaderBytes;
    const Header header = *reinterpret_cast<Header*>(head);
    cpu_counter().now -= header.bytes;
    if (static_cast<std::size_t>(header.bytes) + kHeaderBytes < kMinPooled)
      header.inner->raw_deallocate(head);
    else
      pool().free(head);
  }
  c10::Allocator* inner_;
};

/// Returns no memory; the size is stored in the storage's context.
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
  if (has_counter(device)) {
    const Counter& counter = counter_of(device);
    return {static_cast<std::uint64_t>(counter.now.load()), static_cast<std::uint64_t>(counter.peak.load())};
  }
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto bytes =
      c10::getDeviceAllocator(device.type())->getDeviceStats(device.index()).allocated_bytes[kAll];
  return {static_cast<std::uint64_t>(bytes.current), static_cast<std::uint64_t>(bytes.peak)};
}

void reset_peak(at::Device device) {
  if (has_counter(device))
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
