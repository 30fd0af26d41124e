// Bias, dropout and residual on CUDA: one Philox counter (four columns) per thread.
#include "colonnade/kernels/dropout.h"

#include "colonnade/base/philox.h"
#include "colonnade/kernels/cuda/common.cuh"
#include "colonnade/kernels/instantiate.h"

namespace colonnade::kernels::cuda {
namespace {

template <typename T, typename R>
__global__ void dropout_groups(Dropout<T, R> a, std::int64_t row_groups, std::int64_t first_group) {
  using A = Acc<T>;
  const std::int64_t d1 = a.dims[1];
  const std::int64_t d2 = a.dims[2];
  const std::int64_t total = a.dims[0] * d1 * d2 * row_groups;
  const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < total; i += step) {
    const std::int64_t row = i / row_groups;
    const std::int64_t group = first_group + i % row_groups;
    const std::int64_t i2 = row % d2;
    const std::int64_t i1 = row / d2 % d1;
    const std::int64_t i0 = row / d2 / d1;
    std::array<std::uint32_t, 4> words{~0U, ~0U, ~0U, ~0U};
    if (a.threshold > 0 || a.noise > 0) {
      const std::int64_t row_index =
          a.row_offset + i0 * a.row_steps[0] + i1 * a.row_steps[1] + i2 * a.row_steps[2];
      const std::int64_t sample =
          a.samples[i0 * a.sample_steps[0] + i1 * a.sample_steps[1] + i2 * a.sample_steps[2]];
      words = Philox{a.key}(static_cast<std::uint64_t>(row_index * a.groups + group),
                            static_cast<std::uint64_t>(sample));
    }
    for (int word = 0; word < 4; ++word) {
      const std::int64_t c = group * 4 + word - a.col_offset;
      if (c < 0 || c >= a.cols) continue;
      const std::int64_t at = row * a.cols + c;
      A y = load(a.x[at]);
      if (a.bias != nullptr) y += load(a.bias[c]);
      const std::uint32_t random = words[word] >> 8;
      if (a.noise > 0)
        y *= A(1 - a.noise) + A(a.noise * 0x1.0p-23) * static_cast<A>(random);
      else
        y *= random >= a.threshold ? A(a.scale) : A(0);
      if (a.residual != nullptr) y += load(a.residual[at]);
      a.y[at] = R(y);
    }
  }
}

}  // namespace

template <typename T, typename R>
void dropout(const Dropout<T, R>& a, CUstream_st* stream) {
  const std::int64_t first_group = a.col_offset / 4;
  const std::int64_t row_groups = (a.col_offset + a.cols + 3) / 4 - first_group;
  dropout_groups<<<grid_for(a.dims[0] * a.dims[1] * a.dims[2] * row_groups), kBlock, 0, stream>>>(
      a, row_groups, first_group);
  check_launch("dropout");
}

COL_DROPOUT_KERNELS(COL_INSTANTIATE_CUDA_BOTH_WAYS)

}  // namespace colonnade::kernels::cuda
