// See exact_squares.h.
#include "colonnade/optim/exact_squares.h"

#include <ATen/ops/maximum.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <cmath>
#include <limits>

#include "colonnade/tensor/tally.h"

namespace colonnade::optim {
namespace {

/// Elements that have copies in float64 at once: on the CPU few, which stay in its caches, elsewhere as many
/// as launches pay for. As many parts below 2^22 are exact in a double.
std::int64_t stretch_on(const at::Device& device) { return std::int64_t{1} << (device.is_cpu() ? 15 : 20); }

constexpr std::array<int, 3> kPlaces = {20, 22, 22};  // of each part, from the highest

/// Adds the parts of squares of x / 2^exponent, all below 1, to `sums`.
void add_parts(const at::Tensor& x, int exponent, const at::Tensor& sums) {
  at::Tensor rest = x.to(at::kDouble).mul(std::ldexp(1.0, -exponent)).square_();
  for (std::size_t i = 0; i < kPlaces.size(); ++i) {
    rest.mul_(std::ldexp(1.0, kPlaces[i]));
    const at::Tensor whole = rest.floor();
    rest.sub_(whole);
    sums[static_cast<std::int64_t>(i)].add_(whole.sum().to(at::kLong));
  }
}

/// Of this rank's elements, without a copy of them; infinite where one is not a number, as not every
/// backend's maximum over ranks keeps a NaN and all keep infinity.
void take_largest(const std::vector<at::Tensor>& tensors, const at::Tensor& largest) {
  for (const at::Tensor& x : tensors)
    if (x.numel() > 0)
      largest.copy_(at::maximum(largest, at::maximum(x.max(), x.min().neg()).to(at::kDouble)));
  largest.nan_to_num_(std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity());
}

double largest_of(const std::vector<at::Tensor>& tensors, const comm::Group& ranks,
                  const at::Device& device) {
  const at::Tensor largest = at::zeros({1}, at::dtype(at::kDouble).device(device));
  if (!device.is_meta()) take_largest(tensors, largest);
  ranks.all_reduce(largest, "largest gradient", comm::Reduce::kMax).wait();
  return device.is_meta() ? 0 : tensor::to_host(largest).item<double>();
}

}  // namespace

double exact_squares(const std::vector<at::Tensor>& tensors, const comm::Group& ranks,
                     const at::Device& device) {
  const double largest = largest_of(tensors, ranks, device);
  const bool usual = std::isfinite(largest) && largest > 0;
  int exponent = 0;
  std::frexp(usual ? largest : 1, &exponent);
  const at::Tensor sums = at::zeros({3}, at::dtype(at::kLong).device(device));
  if (usual)
    for (const at::Tensor& x : tensors)
      for (const at::Tensor& stretch : x.flatten().split(stretch_on(device)))
        add_parts(stretch, exponent, sums);
  ranks.all_reduce(sums, "gradient norm").wait();
  if (!usual) return largest;
  const at::Tensor host = tensor::to_host(sums);
  double sum = 0;
  int places = 20 + 22 + 22;
  for (std::size_t i = kPlaces.size(); i-- > 0; places -= kPlaces[i])
    sum += std::ldexp(static_cast<double>(host.const_data_ptr<std::int64_t>()[i]), -places);
  return std::ldexp(sum, 2 * exponent);
}

}  // namespace colonnade::optim
