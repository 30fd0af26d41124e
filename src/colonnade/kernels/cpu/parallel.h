// Parallel loop over the OpenMP threads shared with LibTorch.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace colonnade::kernels::cpu {

/// Calls body(begin, end) for disjoint ranges that cover [0, n), at most one per thread and none shorter than
/// `grain` unless n is. Results must not depend on the range boundaries.
template <typename Body>
void parallel_for(std::int64_t n, std::int64_t grain, const Body& body) {
  const std::int64_t parts =
      omp_in_parallel() ? 1
                        : std::min<std::int64_t>(omp_get_max_threads(), n / std::max<std::int64_t>(grain, 1));
  if (parts <= 1) {
    if (n > 0) body(std::int64_t{0}, n);
    return;
  }
#pragma omp parallel
  {
    const std::int64_t threads = omp_get_num_threads();
    const std::int64_t me = omp_get_thread_num();
    const std::int64_t begin = n * me / threads;
    const std::int64_t end = n * (me + 1) / threads;
    if (begin < end) body(begin, end);
  }
}

/// Minimum number of elements per thread.
inline constexpr std::int64_t kGrain = 16384;

/// Minimum number of rows of `cols` elements per thread.
constexpr std::int64_t row_grain(std::int64_t cols) {
  return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(cols, 1));
}

}  // namespace colonnade::kernels::cpu
