// Bias, dropout and residual on the CPU, vectorized over sixteen Philox counters.
#include "colonnade/kernels/dropout.h"

#include <algorithm>
#include <vector>

#include "colonnade/kernels/cpu/parallel.h"
#include "colonnade/kernels/cpu/vector.h"
#include "colonnade/kernels/instantiate.h"

namespace colonnade::kernels::cpu {
namespace {

constexpr std::int64_t kLanes = 16;

/// Words of Philox{key}(counter + lane, stream) for each lane: base/philox.h with a vectorizable loop over
/// lanes.
[[gnu::always_inline]] inline void philox_lanes(std::uint64_t key, std::uint64_t counter,
                                                std::uint64_t stream, std::uint32_t (&words)[4][kLanes]) {
#pragma omp simd
  for (std::uint64_t lane = 0; lane < kLanes; ++lane) {
    words[0][lane] = static_cast<std::uint32_t>(counter + lane);
    words[1][lane] = static_cast<std::uint32_t>((counter + lane) >> 32);
    words[2][lane] = static_cast<std::uint32_t>(stream);
    words[3][lane] = static_cast<std::uint32_t>(stream >> 32);
  }
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9U, k1 += 0xBB67AE85U) {
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53U} * words[0][lane];
      const std::uint64_t p1 = std::uint64_t{0xCD9E8D57U} * words[2][lane];
      words[0][lane] = static_cast<std::uint32_t>(p1 >> 32) ^ words[1][lane] ^ k0;
      words[2][lane] = static_cast<std::uint32_t>(p0 >> 32) ^ words[3][lane] ^ k1;
      words[1][lane] = static_cast<std::uint32_t>(p1);
      words[3][lane] = static_cast<std::uint32_t>(p0);
    }
  }
}

/// Multiplicative factors (0 or scale, or noise) of one row for columns [a.col_offset, a.col_offset +
/// a.cols).
template <typename T, typename R>
[[gnu::always_inline]] inline void row_factors(const Dropout<T, R>& a, std::int64_t row_index,
                                               std::uint64_t sample, Acc<T>* factors) {
  using A = Acc<T>;
  const std::uint64_t base = static_cast<std::uint64_t>(row_index) * static_cast<std::uint64_t>(a.groups);
  const A scale = static_cast<A>(a.scale);
  const A low = static_cast<A>(1 - a.noise), width = static_cast<A>(a.noise * 0x1.0p-23);
  std::uint32_t words[4][kLanes];
  A block[4 * kLanes];
  for (std::int64_t group = a.col_offset / 4; group * 4 < a.col_offset + a.cols; group += kLanes) {
    philox_lanes(a.key, base + static_cast<std::uint64_t>(group), sample, words);
    for (std::int64_t word = 0; word < 4; ++word) {
      if (a.noise > 0) {
        for (std::int64_t lane = 0; lane < kLanes; ++lane)
          block[4 * lane + word] = low + width * static_cast<A>(words[word][lane] >> 8);
      } else {
        for (std::int64_t lane = 0; lane < kLanes; ++lane)
          block[4 * lane + word] = (words[word][lane] >> 8) >= a.threshold ? scale : A(0);
      }
    }
    const std::int64_t first =
        group * 4 - a.col_offset;  // the block may start before and end after the local columns
    const std::int64_t begin = std::max<std::int64_t>(0, -first);
    const std::int64_t end = std::min<std::int64_t>(4 * kLanes, a.cols - first);
    for (std::int64_t i = begin; i < end; ++i) factors[first + i] = block[i];
  }
}

template <typename T, typename R>
COL_CLONES void dropout_rows(const Dropout<T, R>& a, std::int64_t begin, std::int64_t end) {
  using A = Acc<T>;
  std::vector<A> factors(static_cast<std::size_t>(a.cols), static_cast<A>(a.scale));
  const A* factor = factors.data();
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t i2 = row % a.dims[2];
    const std::int64_t i1 = row / a.dims[2] % a.dims[1];
    const std::int64_t i0 = row / a.dims[2] / a.dims[1];
    if (a.threshold > 0 || a.noise > 0) {
      const std::int64_t row_index =
          a.row_offset + i0 * a.row_steps[0] + i1 * a.row_steps[1] + i2 * a.row_steps[2];
      const std::int64_t sample =
          a.samples[i0 * a.sample_steps[0] + i1 * a.sample_steps[1] + i2 * a.sample_steps[2]];
      row_factors(a, row_index, static_cast<std::uint64_t>(sample), factors.data());
    }
    const T* x = a.x + row * a.cols;
    R* y = a.y + row * a.cols;
    const R* residual = a.residual != nullptr ? a.residual + row * a.cols : nullptr;
    if (a.bias != nullptr && residual != nullptr) {
#pragma omp simd
      for (std::int64_t c = 0; c < a.cols; ++c)
        y[c] = R(load(residual[c]) + factor[c] * (load(x[c]) + load(a.bias[c])));
    } else if (residual != nullptr) {
#pragma omp simd
      for (std::int64_t c = 0; c < a.cols; ++c) y[c] = R(load(residual[c]) + factor[c] * load(x[c]));
    } else if (a.bias != nullptr) {
#pragma omp simd
      for (std::int64_t c = 0; c < a.cols; ++c) y[c] = R(factor[c] * (load(x[c]) + load(a.bias[c])));
    } else {
#pragma omp simd
      for (std::int64_t c = 0; c < a.cols; ++c) y[c] = R(factor[c] * load(x[c]));
    }
  }
}

}  // namespace

template <typename T, typename R>
void dropout(const Dropout<T, R>& a) {
  parallel_for(a.dims[0] * a.dims[1] * a.dims[2], row_grain(a.cols),
               [&](std::int64_t begin, std::int64_t end) { dropout_rows(a, begin, end); });
}

COL_DROPOUT_KERNELS(COL_INSTANTIATE_CPU_BOTH_WAYS)

}  // namespace colonnade::kernels::cpu
