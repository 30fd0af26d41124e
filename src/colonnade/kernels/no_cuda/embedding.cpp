// embedding.h stubs for builds without CUDA: every function throws.
#include "colonnade/kernels/embedding.h"

#include "colonnade/kernels/no_cuda/unavailable.h"

namespace colonnade::kernels::cuda {

template <typename T>
void embedding(const Embedding<T>&, CUstream_st*) {
  unavailable("embedding");
}
template <typename T>
void embedding_grad(const EmbeddingGrad<T>&, CUstream_st*) {
  unavailable("embedding_grad");
}

template void embedding(const Embedding<float>&, CUstream_st*);
template void embedding(const Embedding<double>&, CUstream_st*);
template void embedding(const Embedding<BFloat16>&, CUstream_st*);
template void embedding(const Embedding<Half>&, CUstream_st*);
template void embedding_grad(const EmbeddingGrad<float>&, CUstream_st*);
template void embedding_grad(const EmbeddingGrad<double>&, CUstream_st*);
template void embedding_grad(const EmbeddingGrad<BFloat16>&, CUstream_st*);
template void embedding_grad(const EmbeddingGrad<Half>&, CUstream_st*);

}  // namespace colonnade::kernels::cuda
