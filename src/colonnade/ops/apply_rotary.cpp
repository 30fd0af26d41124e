// See apply_rotary.h.
#include "colonnade/ops/apply_rotary.h"

#include "colonnade/base/error.h"
#include "colonnade/kernels/rotary.h"
#include "colonnade/ops/autograd.h"
#include "colonnade/ops/launch.h"

namespace colonnade::ops {

void apply_rotary(const Tensor& x, const Tensor& y, const RotaryTable& table, const Tensor& positions,
                  bool inverse) {
  const auto strides = [](const Tensor& t) {
    return kernels::HeadStrides{t.stride(0), t.stride(1), t.stride(2)};
  };
  with_float_type(x.scalar_type(), [&]<typename T>() {
    launch(
        x, kernels::cpu::rotary<T>, kernels::cuda::rotary<T>,
        kernels::Rotary<T>{in<T>(x), strides(x), out<T>(y), strides(y), x.size(0), x.size(1), x.size(2),
                           x.size(3), table.cos.defined() ? 2 * table.cos.size(1) : 0, in<float>(table.cos),
                           in<float>(table.sin), in<std::int64_t>(positions), table.interleaved, inverse});
  });
}

Tensor checked_positions(const RotaryTable& table, const Tensor& positions, std::int64_t s, std::int64_t b,
                         std::int64_t head_dim) {
  COL_CHECK(2 * table.cos.size(1) <= head_dim, "rotary channels must fit in the head; got {} of {} channels",
            2 * table.cos.size(1), head_dim);
  const std::int64_t length = table.cos.size(0);
  if (!positions.defined()) {
    COL_CHECK(s <= length, "rotary positions must lie in the table; got {} rows of {}; use a longer table", s,
              length);
    return positions;
  }
  COL_CHECK(positions.scalar_type() == at::kLong && positions.dim() == 2 && positions.size(0) == s &&
                positions.size(1) == b,
            "rotary positions must be int64 [s, b] = [{}, {}]; got {}", s, b, c10::str(positions.sizes()));
  COL_CHECK(positions.device() == table.cos.device(),
            "rotary positions must be on {}, the device of the table; got {}; move them",
            table.cos.device().str(), positions.device().str());
  if (positions.is_cpu() && positions.numel() > 0) {
    const auto low = positions.min().item<std::int64_t>();
    const auto high = positions.max().item<std::int64_t>();
    COL_CHECK(low >= 0 && high < length,
              "rotary positions must lie in [0, {}); got {} to {}; use a longer table", length, low, high);
  }
  return positions.contiguous();
}

}  // namespace colonnade::ops
