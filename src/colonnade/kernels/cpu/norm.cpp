// RMSNorm and LayerNorm on the CPU: a row stays in L1 cache through its passes.
#include "colonnade/kernels/norm.h"

#include <cmath>

#include "colonnade/kernels/cpu/parallel.h"
#include "colonnade/kernels/cpu/vector.h"
#include "colonnade/kernels/instantiate.h"

namespace colonnade::kernels::cpu {
namespace {

template <bool kCenter, typename T, typename S>
COL_CLONES void forward_rows(const Norm<T, S>& a, std::int64_t begin, std::int64_t end) {
  using A = Acc<T>;
  const std::int64_t cols = a.cols;
  const A shift = a.zero_centered ? A(1) : A(0);
  for (std::int64_t row = begin; row < end; ++row) {
    const S* x = a.x + row * cols;
    T* y = a.y + row * cols;
    if (a.added != nullptr) {
      const T* added = a.added + row * cols;
      S* sum = a.sum + row * cols;
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c) sum[c] = S(load(x[c]) + load(added[c]));
      x = sum;
    }
    A mean = 0;
    if constexpr (kCenter) {
#pragma omp simd reduction(+ : mean)
      for (std::int64_t c = 0; c < cols; ++c) mean += load(x[c]);
      mean /= A(cols);
      a.mean[row] = mean;
    }
    A squares = 0;
#pragma omp simd reduction(+ : squares)
    for (std::int64_t c = 0; c < cols; ++c) squares += (load(x[c]) - mean) * (load(x[c]) - mean);
    const A rstd = A(1) / std::sqrt(squares / A(cols) + A(a.eps));
    a.rstd[row] = rstd;
    if (a.bias != nullptr) {
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c)
        y[c] = T((load(x[c]) - mean) * rstd * (load(a.weight[c]) + shift) + load(a.bias[c]));
    } else {
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c)
        y[c] = T((load(x[c]) - mean) * rstd * (load(a.weight[c]) + shift));
    }
  }
}

/// Backward of one block of rows; its column sums go to weight_sum and bias_sum [cols].
template <bool kCenter, typename T, typename S>
COL_CLONES void backward_rows(const NormGrad<T, S>& a, std::int64_t begin, std::int64_t end,
                              Acc<T>* weight_sum, Acc<T>* bias_sum) {
  using A = Acc<T>;
  const std::int64_t cols = a.cols;
  const T* weight = a.weight;
  const A shift = a.zero_centered ? A(1) : A(0);
  for (std::int64_t c = 0; c < cols; ++c) weight_sum[c] = 0;
  if (bias_sum != nullptr)
    for (std::int64_t c = 0; c < cols; ++c) bias_sum[c] = 0;
  for (std::int64_t row = begin; row < end; ++row) {
    const S* x = a.x + row * cols;
    const T* grad_y = a.grad_y + row * cols;
    S* grad_x = a.grad_x + row * cols;
    const A rstd = a.rstd[row];
    const A mean = kCenter ? a.mean[row] : A(0);
    A dot = 0;
#pragma omp simd reduction(+ : dot)
    for (std::int64_t c = 0; c < cols; ++c)
      dot += load(grad_y[c]) * (load(weight[c]) + shift) * (load(x[c]) - mean);
    A total = 0;
    if constexpr (kCenter) {
#pragma omp simd reduction(+ : total)
      for (std::int64_t c = 0; c < cols; ++c) total += load(grad_y[c]) * (load(weight[c]) + shift);
    }
    const A mean_gx = dot * rstd / A(cols);
    const A mean_g = total / A(cols);
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) {
      const A g = load(grad_y[c]);
      const A xhat = (load(x[c]) - mean) * rstd;
      weight_sum[c] += g * xhat;
      grad_x[c] = S(rstd * (g * (load(weight[c]) + shift) - mean_g - xhat * mean_gx));
    }
    if (bias_sum != nullptr) {
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c) bias_sum[c] += load(grad_y[c]);
    }
    if (a.grad_sum != nullptr) {
      const S* grad_sum = a.grad_sum + row * cols;
#pragma omp simd
      for (std::int64_t c = 0; c < cols; ++c) grad_x[c] = S(load(grad_x[c]) + load(grad_sum[c]));
    }
  }
}

template <typename A>
COL_CLONES void add_blocks(const A* partial, std::int64_t blocks, std::int64_t cols, A* sum) {
  for (std::int64_t c = 0; c < cols; ++c) sum[c] = partial[c];
  for (std::int64_t block = 1; block < blocks; ++block) {
    const A* row = partial + block * cols;
#pragma omp simd
    for (std::int64_t c = 0; c < cols; ++c) sum[c] += row[c];
  }
}

}  // namespace

template <typename T, typename S>
void norm(const Norm<T, S>& a) {
  parallel_for(a.rows, row_grain(a.cols), [&](std::int64_t begin, std::int64_t end) {
    if (a.mean != nullptr)
      forward_rows<true>(a, begin, end);
    else
      forward_rows<false>(a, begin, end);
  });
}

template <typename T, typename S>
void norm_grad(const NormGrad<T, S>& a) {
  const std::int64_t blocks = column_blocks(a.rows);
  Acc<T>* bias_partial = a.partial + blocks * a.cols;
  const std::int64_t grain =
      std::max<std::int64_t>(1, row_grain(a.cols) * blocks / std::max<std::int64_t>(a.rows, 1));
  parallel_for(blocks, grain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      Acc<T>* bias_sum = a.grad_bias != nullptr ? bias_partial + block * a.cols : nullptr;
      const std::int64_t begin = block_begin(a.rows, block);
      const std::int64_t end = block_begin(a.rows, block + 1);
      if (a.mean != nullptr)
        backward_rows<true>(a, begin, end, a.partial + block * a.cols, bias_sum);
      else
        backward_rows<false>(a, begin, end, a.partial + block * a.cols, bias_sum);
    }
  });
  add_blocks<Acc<T>>(a.partial, blocks, a.cols, a.grad_weight);
  if (a.grad_bias != nullptr) add_blocks<Acc<T>>(bias_partial, blocks, a.cols, a.grad_bias);
}

COL_NORM_KERNELS(COL_INSTANTIATE_CPU_MIXED)

}  // namespace colonnade::kernels::cpu
