// A loop split over the OpenMP threads that LibTorch uses too.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

namespace colonnade::kernels::cpu {

/// body(begin, end) over disjoint ranges that cover [0, n), at most one per thread and none shorter
/// than `grain` unless n is. Bodies must not let results depend on where ranges end.
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

/// Elements a thread should have before another one is worth waking.
inline constexpr std::int64_t kGrain = 16384;

/// The same in rows of `cols` elements.
constexpr std::int64_t row_grain(std::int64_t cols) {
  return std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(cols, 1));
}

}  // namespace colonnade::kernels::cpu
