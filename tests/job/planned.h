// Shared by the tests of the memory plan: real jobs of single ranks on meta tensors or on the CPU. Their
// groups transfer nothing, so that one rank of any layout can run alone.
#pragma once

#include "colonnade/comm/null_backend.h"
#include "colonnade/job/buffers.h"
#include "colonnade/job/dry_run.h"
#include "colonnade/tensor/counting_allocator.h"
#include "job/runs.h"

namespace colonnade::test {

struct Planned {
  const char* name;
  int world;
  const char* flags;
};

/// 4 layers of Llama 3 8B in bf16, with the flags of `more`.
inline std::string llama(const std::string& more) {
  return "--num-layers 4 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
         "--group-query-attention --num-query-groups 8 --vocab-size 128256 --max-position-embeddings 8192 "
         "--position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear --bf16 "
         "--untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0 "
         "--seq-length 2048 " +
         more;
}

/// GPT-2 124M: learned positions, LayerNorm, biases, tied embeddings, a vocabulary that needs padding.
inline std::string gpt2(const std::string& more) {
  return "--num-layers 12 --hidden-size 768 --num-attention-heads 12 --vocab-size 50257 "
         "--max-position-embeddings 1024 --hidden-dropout 0.1 --attention-dropout 0 --seq-length 1024 " +
         more;
}

/// Odd sizes: every parameter needs padding in the flat buffers.
inline std::string odd(const std::string& more) {
  return "--num-layers 4 --hidden-size 72 --ffn-hidden-size 100 --num-attention-heads 4 --kv-channels 18 "
         "--vocab-size 517 --max-position-embeddings 40 --attention-dropout 0 --seq-length 40 " +
         more;
}

/// Multi-latent attention with value heads narrower than those of queries and keys.
inline std::string latent(const std::string& more) {
  return odd("--multi-latent-attention --position-embedding-type rope --kv-channels 26 --kv-lora-rank 20 "
             "--qk-head-dim 18 --qk-pos-emb-head-dim 8 --v-head-dim 14 ") +
         more;
}

inline config::Run planned_run(const Planned& one, const std::string& model, const std::string& device) {
  config::Run run = settings(one.world, words(model + one.flags));
  run.training.device = device;
  return run;
}

/// A single rank of a run, as job::Job builds it.
struct SingleRank {
  SingleRank(const config::Run& run, int rank)
      : job(run, comm::Communicators(layout::Mesh(run.parallel), rank, comm::null_factory(nullptr))) {}
  job::Job job;

  [[nodiscard]] std::size_t pipeline_rank() const {
    return static_cast<std::size_t>(job.ranks.mesh().coord(job.ranks.rank(), layout::Axis::kPp));
  }
};

/// Forward passes of all micro-batches without saved activations.
inline void evaluation(job::Job& job) { job.executor().evaluate(job::empty_steps(job.run)); }

/// Forward and backward of all micro-batches and gradient reduction: a step without the optimizer.
inline void forward_backward(job::Job& job) {
  job.buffers().start_step();
  job.executor().train(job::empty_steps(job.run), 1.0, job::gradient_events(job.buffers()));
  job.buffers().finish();
}

}  // namespace colonnade::test
