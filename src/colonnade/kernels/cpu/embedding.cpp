// Embedding on the CPU. Backward splits the columns over threads, so each element is summed in token order
// for any number of threads.
#include "colonnade/kernels/embedding.h"

#include <cstring>

#include "colonnade/kernels/cpu/parallel.h"
#include "colonnade/kernels/cpu/vector.h"
#include "colonnade/kernels/instantiate.h"

namespace colonnade::kernels::cpu {
namespace {

template <typename T>
COL_CLONES void add_columns(const EmbeddingGrad<T>& a, std::int64_t begin, std::int64_t end) {
  for (std::int64_t i = 0; i < a.n; ++i) {
    const std::int64_t row = a.tokens[i] - a.first;
    if (row < 0 || row >= a.count) continue;
    const T* from = a.grad_y + (a.order != nullptr ? a.order[i] : i) * a.h;
    Acc<T>* to = a.grad + row * a.h;
#pragma omp simd
    for (std::int64_t c = begin; c < end; ++c) to[c] += load(from[c]);
  }
}

}  // namespace

template <typename T>
void embedding(const Embedding<T>& a) {
  parallel_for(a.s * a.b, row_grain(a.h), [&](std::int64_t begin, std::int64_t end) {
    const std::size_t bytes = static_cast<std::size_t>(a.h) * sizeof(T);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = a.tokens[(i % a.b) * a.s + i / a.b] - a.first;
      if (row >= 0 && row < a.count)
        std::memcpy(a.y + i * a.h, a.table + row * a.h, bytes);
      else
        std::memset(static_cast<void*>(a.y + i * a.h), 0, bytes);
    }
  });
}

template <typename T>
void embedding_grad(const EmbeddingGrad<T>& a) {
  constexpr std::int64_t kLine = 16;
  const std::int64_t lines = (a.h + kLine - 1) / kLine;
  parallel_for(lines, std::max<std::int64_t>(1, kGrain / std::max<std::int64_t>(1, a.n * kLine)),
               [&](std::int64_t begin, std::int64_t end) {
                 add_columns(a, begin * kLine, std::min(end * kLine, a.h));
               });
}

COL_EMBEDDING_KERNELS(COL_INSTANTIATE_CPU)

}  // namespace colonnade::kernels::cpu
