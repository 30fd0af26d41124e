// Blocked reduction: the accumulators of a block stay in L1 cache while the inputs stream through.
#include "colonnade/comm/local_reduce.h"

#include <ATen/OpMathType.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "colonnade/base/error.h"

namespace colonnade::comm {
namespace {

template <typename A>
struct Sum {
  static A apply(A a, A b) { return static_cast<A>(a + b); }
};
template <typename A>
struct Max {
  static A apply(A a, A b) { return b > a || b != b ? b : a; }  // b != b: NaN propagates
};
template <typename A>
struct Min {
  static A apply(A a, A b) { return b < a || b != b ? b : a; }
};

template <typename T, template <typename> class Op>
void reduce_as(std::span<const void* const> inputs, void* out, std::int64_t count) {
  using Acc = at::opmath_type<T>;
  constexpr std::int64_t kBlock = 1024;
  std::array<Acc, kBlock> acc;
  for (std::int64_t first = 0; first < count; first += kBlock) {
    const std::int64_t n = std::min(kBlock, count - first);
    const T* x = static_cast<const T*>(inputs[0]) + first;
    for (std::int64_t i = 0; i < n; ++i) acc[static_cast<std::size_t>(i)] = static_cast<Acc>(x[i]);
    for (const void* input : inputs.subspan(1)) {
      x = static_cast<const T*>(input) + first;
      for (std::int64_t i = 0; i < n; ++i) {
        Acc& a = acc[static_cast<std::size_t>(i)];
        a = Op<Acc>::apply(a, static_cast<Acc>(x[i]));
      }
    }
    T* y = static_cast<T*>(out) + first;
    for (std::int64_t i = 0; i < n; ++i) y[i] = static_cast<T>(acc[static_cast<std::size_t>(i)]);
  }
}

template <typename T>
void reduce_by(Reduce op, std::span<const void* const> inputs, void* out, std::int64_t count) {
  switch (op) {
    case Reduce::kSum:
      return reduce_as<T, Sum>(inputs, out, count);
    case Reduce::kMax:
      return reduce_as<T, Max>(inputs, out, count);
    case Reduce::kMin:
      return reduce_as<T, Min>(inputs, out, count);
  }
}

}  // namespace

void reduce(at::ScalarType type, std::span<const void* const> inputs, void* out, std::int64_t count,
            Reduce op) {
  switch (type) {
    case at::kDouble:
      return reduce_by<double>(op, inputs, out, count);
    case at::kFloat:
      return reduce_by<float>(op, inputs, out, count);
    case at::kBFloat16:
      return reduce_by<at::BFloat16>(op, inputs, out, count);
    case at::kHalf:
      return reduce_by<at::Half>(op, inputs, out, count);
    case at::kLong:
      return reduce_by<std::int64_t>(op, inputs, out, count);
    case at::kInt:
      return reduce_by<std::int32_t>(op, inputs, out, count);
    case at::kByte:
      return reduce_by<std::uint8_t>(op, inputs, out, count);
    default:
      COL_CHECK(
          false,
          "dtype of a reduction must be float64, float32, bfloat16, float16, int64, int32 or uint8; got {}",
          c10::toString(type));
  }
}

}  // namespace colonnade::comm
