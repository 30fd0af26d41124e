// See counting_allocator.h.
#include "colonnade/tensor/counting_allocator.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>

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

/// What a counted tensor's memory is freed with.
struct Counted {
  c10::DataPtr memory;
  std::int64_t bytes;
};

class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* inner) : inner_(inner) {}

  c10::DataPtr allocate(std::size_t bytes) override {
    auto* counted = new Counted{inner_->allocate(bytes), static_cast<std::int64_t>(bytes)};
    counter().add(counted->bytes);
    void* data = counted->memory.get();
    return {data, counted, &release, counted->memory.device()};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    inner_->copy_data(to, from, bytes);
  }

 private:
  static void release(void* context) {
    auto* counted = static_cast<Counted*>(context);
    counter().now -= counted->bytes;
    delete counted;
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
