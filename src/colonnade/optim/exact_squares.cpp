// See exact_squares.h.
#include "colonnade/optim/exact_squares.h"

#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <cmath>
#include <limits>

#include "colonnade/tensor/metric_sum.h"

namespace colonnade::optim {
namespace {

/// Elements converted to float64 at a time: few on the CPU, to stay in cache, more elsewhere, to amortize
/// kernel launches. Sums of this many parts below 2^22 are exact in a double.
std::int64_t chunk_elements(const at::Device& device) {
  return std::int64_t{1} << (device.is_cpu() ? 15 : 20);
}

constexpr std::array<int, 3> kPartBits = {20, 22, 22};  // bits of each part, from the highest

/// Splits the squares of x / 2^exponent, all below 1, into integer parts and adds them to `sums`.
void add_parts(const at::Tensor& x, int exponent, const at::Tensor& sums) {
  at::Tensor rest = x.to(at::kDouble).mul(std::ldexp(1.0, -exponent)).square_();
  for (std::size_t i = 0; i < kPartBits.size(); ++i) {
    rest.mul_(std::ldexp(1.0, kPartBits[i]));
    const at::Tensor whole = rest.floor();
    rest.sub_(whole);
    sums[static_cast<std::int64_t>(i)].add_(whole.sum().to(at::kLong));
  }
}

/// Maximum of |x| into `largest`, without copies. NaN becomes infinity, which unlike NaN survives the max
/// all-reduce of every backend.
void max_abs_into(const std::vector<at::Tensor>& tensors, const at::Tensor& largest) {
  for (const at::Tensor& x : tensors)
    if (x.numel() > 0)
      largest.copy_(at::maximum(largest, at::maximum(x.max(), x.min().neg()).to(at::kDouble)));
  largest.nan_to_num_(std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity());
}

double global_max_abs(const std::vector<at::Tensor>& tensors, const comm::Group& ranks,
                      const at::Device& device) {
  const at::Tensor largest = at::zeros({1}, at::dtype(at::kDouble).device(device));
  if (!device.is_meta()) max_abs_into(tensors, largest);
  ranks.all_reduce(largest, "largest gradient", comm::Reduce::kMax).wait();
  return device.is_meta() ? 0 : tensor::to_host(largest).item<double>();
}

}  // namespace

double exact_squares(const std::vector<at::Tensor>& tensors, const comm::Group& ranks,
                     const at::Device& device) {
  const double largest = global_max_abs(tensors, ranks, device);
  const bool regular = std::isfinite(largest) && largest > 0;
  int exponent = 0;
  std::frexp(regular ? largest : 1, &exponent);
  const at::Tensor sums = at::zeros({3}, at::dtype(at::kLong).device(device));
  if (regular)
    for (const at::Tensor& x : tensors)
      for (const at::Tensor& chunk : x.flatten().split(chunk_elements(device)))
        add_parts(chunk, exponent, sums);
  ranks.all_reduce(sums, "gradient norm").wait();
  if (!regular) return largest;
  const at::Tensor host = tensor::to_host(sums);
  double sum = 0;
  int bits = 20 + 22 + 22;
  for (std::size_t i = kPartBits.size(); i-- > 0; bits -= kPartBits[i])
    sum += std::ldexp(static_cast<double>(host.const_data_ptr<std::int64_t>()[i]), -bits);
  return std::ldexp(sum, 2 * exponent);
}

}  // namespace colonnade::optim
