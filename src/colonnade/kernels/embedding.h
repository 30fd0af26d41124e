// Embedding lookup and its gradient.
#pragma once

#include <cstdint>

#include "colonnade/kernels/types.h"

namespace colonnade::kernels {

/// y[s, b, :] = table[tokens[b, s] - first], zeros for tokens outside [first, first + count).
template <typename T>
struct Embedding {
  const std::int64_t* tokens;  ///< [b, s]
  const T* table;
  T* y;
  std::int64_t s;
  std::int64_t b;
  std::int64_t h;
  std::int64_t first;
  std::int64_t count;
};

/// grad[tokens[i] - first] += grad_y[order[i]] for i = 0, 1, ..., each element in that order.
template <typename T>
struct EmbeddingGrad {
  const std::int64_t* tokens;  ///< [n], token of entry i; ascending on CUDA
  const std::int64_t* order;   ///< [n], row of grad_y for entry i; null: i
  const T* grad_y;             ///< [n, h]
  Acc<T>* grad;                ///< [>= count, h]
  std::int64_t n;
  std::int64_t h;
  std::int64_t first;
  std::int64_t count;
};

namespace cpu {
template <typename T>
void embedding(const Embedding<T>& a);
template <typename T>
void embedding_grad(const EmbeddingGrad<T>& a);
}  // namespace cpu

namespace cuda {
template <typename T>
void embedding(const Embedding<T>& a, CUstream_st* stream);
template <typename T>
void embedding_grad(const EmbeddingGrad<T>& a, CUstream_st* stream);
}  // namespace cuda

/// Kernels of this header (instantiate.h).
#define COL_EMBEDDING_KERNELS(M) M(embedding, Embedding) M(embedding_grad, EmbeddingGrad)

}  // namespace colonnade::kernels
