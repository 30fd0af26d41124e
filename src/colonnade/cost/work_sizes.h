// Sizes of one micro-batch on one rank, and passes that several kinds of block make. Private to work*.cpp.
#pragma once

#include <algorithm>

#include "colonnade/cost/activations.h"
#include "colonnade/cost/work.h"

namespace colonnade::cost {

struct WorkSizes {
  explicit WorkSizes(const config::Run& run)
      : m(run.model),
        t(run.parallel.tensor_model_parallel_size),
        length(static_cast<double>(run.training.seq_length)),
        n(static_cast<double>(run.training.micro_batch_size) * length / run.parallel.context_parallel_size),
        by_sequence(run.parallel.sequence_parallel && t > 1),
        r(by_sequence ? n / t : n),
        e(static_cast<double>(element_size(m))),
        h(static_cast<double>(m.hidden_size)),
        heads(static_cast<double>(m.num_attention_heads) / t),
        q(heads * static_cast<double>(m.kv_channels)),
        kv(static_cast<double>(m.kv_channels) * std::max(1.0, static_cast<double>(m.num_query_groups) / t)),
        out(heads * static_cast<double>(m.value_channels())),
        up(m.gated() ? 2 : 1),
        ffn(static_cast<double>(m.ffn_hidden_size) / t),
        whole(n * h * e),
        hidden(r * h * e) {}

  const config::Model& m;
  double t, length;  ///< tensor ranks; tokens of a whole sequence
  double n;          ///< tokens of a rank
  bool by_sequence;
  double r;  ///< tokens between the parallel stretches
  double e, h, heads, q, kv, out;
  double up, ffn;  ///< columns of fc1 per column of the activation; those of this rank
  double whole;    ///< bytes of [n, h]
  double hidden;   ///< bytes of [r, h]
};

/// A norm together with the sum of the residual stream: forward it reads the stream and what is added and
/// writes both results; backward it reads two gradients and its input and writes a gradient.
inline void add_norm(Work& work, const WorkSizes& z) { work.pass(4 * z.hidden, 4 * z.hidden, 1, 2); }

/// A norm alone of `bytes`: reads and writes them; backward it reads a gradient and its input and writes one.
inline void add_plain_norm(Work& work, double bytes) { work.pass(2 * bytes, 3 * bytes, 1, 2); }
inline void add_sandwich_norm(Work& work, const WorkSizes& z) {
  if (z.m.sandwich_norm) add_plain_norm(work, z.hidden);
}

/// The tensor ranks gather [r, width] forward and scatter its gradient; without sequence parallelism they sum
/// the gradient alone, which is as much as both.
inline void add_opening(Work& work, const WorkSizes& z, double bytes) {
  work.collectives.push_back({Among::kTensor, false, bytes, z.by_sequence ? 1 : 0, z.by_sequence ? 1 : 2});
}
/// The other way round.
inline void add_closing(Work& work, const WorkSizes& z, double bytes) {
  work.collectives.push_back({Among::kTensor, false, bytes, z.by_sequence ? 1 : 2, z.by_sequence ? 1 : 0});
}

/// fc1, activation, fc2 over `ffn` columns of this rank.
inline void add_mlp(Work& work, const WorkSizes& z, const char* fc1, const char* fc2, double ffn) {
  const double wide = z.up * ffn;
  work.pass(z.n * z.e * (wide + ffn), z.n * z.e * (2 * wide + ffn), 1, 1);
  work.products.push_back({fc1, z.n, wide, z.h, LinearCut::kColumns, z.whole});
  work.products.push_back({fc2, z.n, z.h, ffn, LinearCut::kRows, z.whole});
}

/// A layer's second half behind its norm, and before the one that may follow it.
Work without_norms(const config::Run& run, Work work);

/// stage_work of an encoder and its decoder (work_encoder.cpp).
std::vector<RepeatedWork> encoder_stage_work(const config::Run& run, const layout::StageBlocks& stage,
                                             ScoresIn scores);

}  // namespace colonnade::cost
