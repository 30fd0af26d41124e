// See counting_allocator.h.
#include "colonnade/tensor/counting_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/alignment.h>

#include <atomic>
#include <cstddef>
#include <new>

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

/// Reached by the deleters of tensors that may outlive everything else.
Counter& counter() {
  static auto* const one = new Counter;
  return *one;
}

class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* inner) : inner_(inner) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    const at::Device cpu(at::kCPU);
    if (bytes == 0) return {nullptr, nullptr, &release, cpu};
    auto* head = static_cast<std::byte*>(inner_->raw_allocate(bytes + kHead));
    new (head) Head{inner_, static_cast<std::int64_t>(bytes)};
    counter().add(static_cast<std::int64_t>(bytes));
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
    counter().now -= known.bytes;
    known.inner->raw_deallocate(head);
  }
  c10::Allocator* inner_;
};

}  // namespace

void count_cpu_memory() {
  static CountingAllocator allocator(c10::GetCPUAllocator());
  c10::SetCPUAllocator(&allocator, /*priority=*/1);
}

MemoryUse cpu_memory() {
  return {static_cast<std::uint64_t>(counter().now.load()),
          static_cast<std::uint64_t>(counter().peak.load())};
}

void reset_cpu_peak() { counter().peak = counter().now.load(); }

std::uint64_t peak_memory(at::Device device) {
  if (device.is_cpu()) return cpu_memory().peak;
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto stats = c10::getDeviceAllocator(at::kCUDA)->getDeviceStats(device.index());
  return static_cast<std::uint64_t>(stats.allocated_bytes[kAll].peak);
}

}  // namespace colonnade::tensor
