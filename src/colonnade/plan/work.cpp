// Counts by formula; see work.h for the letters.
#include "colonnade/plan/work.h"

#include <algorithm>

#include "colonnade/plan/activations.h"
#include "colonnade/plan/flops.h"
#include "colonnade/plan/recompute.h"

namespace colonnade::plan {
namespace {

/// Sizes of one micro-batch on one rank.
struct Sizes {
  explicit Sizes(const config::Run& run)
      : m(run.model),
        t(run.parallel.tensor_model_parallel_size),
        s(static_cast<double>(run.training.seq_length) / run.parallel.context_parallel_size),
        n(static_cast<double>(run.training.micro_batch_size) * s),
        e(static_cast<double>(element_size(m))),
        h(static_cast<double>(m.hidden_size)),
        q(static_cast<double>(m.num_attention_heads * m.kv_channels) / t),
        kv(static_cast<double>(m.kv_channels) * std::max(1.0, static_cast<double>(m.num_query_groups) / t)),
        ffn(static_cast<double>(m.ffn_hidden_size) / t),
        fc1(m.gated() ? 2 * ffn : ffn),
        whole(n * h * e),
        hidden(run.parallel.sequence_parallel ? whole / t : whole) {}

  const config::Model& m;
  double t, s, n, e, h, q, kv, ffn, fc1;
  double whole;   ///< bytes of [n, h]
  double hidden;  ///< bytes of [r, h]
};

/// A norm together with the sum of the residual stream: forward it reads the stream and what is added and
/// writes both results; backward it reads two gradients and its input and writes a gradient.
void add_norm(Work& work, const Sizes& z) {
  work.forward_bytes += 4 * z.hidden;
  work.backward_bytes += 4 * z.hidden;
  work.forward_kernels += 1;
  work.backward_kernels += 2;
}

/// A sandwich norm reads and writes the stream; backward it reads a gradient and its input and writes one.
void add_sandwich_norm(Work& work, const Sizes& z) {
  if (!z.m.sandwich_norm) return;
  work.forward_bytes += 2 * z.hidden;
  work.backward_bytes += 3 * z.hidden;
  work.forward_kernels += 1;
  work.backward_kernels += 2;
}

/// Scores under a soft cap are written by their product and read and written by scale, tanh, scale, mask and
/// softmax; backward as often.
void add_score_passes(Work& work, const Sizes& z) {
  if (z.m.attn_logit_softcapping == 0) return;
  const double passes = 11 * z.n * z.s * z.q / static_cast<double>(z.m.kv_channels) * z.e;
  work.forward_bytes += passes;
  work.backward_bytes += passes;
  work.forward_kernels += 6;
  work.backward_kernels += 6;
}

}  // namespace

Work embedding_work(const config::Run& run) {
  const Sizes z(run);
  Work work;
  work.forward_bytes = 2 * z.whole;
  work.backward_bytes = 2 * z.whole;
  work.forward_kernels = work.backward_kernels = 2;
  work.summed = z.whole;
  return work;
}

Work attention_work(const config::Run& run) {
  const Sizes z(run);
  Work work;
  add_norm(work, z);
  const double turned = z.m.rotary() ? z.q + z.kv : 0;
  const double normed = z.m.qk_layernorm ? z.q + z.kv : 0;
  work.forward_bytes += 2 * z.n * z.e * (turned + normed);
  work.backward_bytes += z.n * z.e * (2 * turned + 3 * normed);
  work.forward_kernels += (turned > 0 ? 2 : 0) + (normed > 0 ? 2 : 0);
  work.backward_kernels += (turned > 0 ? 2 : 0) + (normed > 0 ? 4 : 0);
  add_sandwich_norm(work, z);
  add_score_passes(work, z);
  work.attention_flops = 2 * z.n * z.s * z.q;
  work.products = {{"qkv", z.n, z.q + 2 * z.kv, z.h, LinearCut::kColumns, z.whole},
                   {"proj", z.n, z.h, z.q, LinearCut::kRows, z.whole}};
  return work;
}

Work mlp_work(const config::Run& run) {
  const Sizes z(run);
  Work work;
  add_norm(work, z);
  add_sandwich_norm(work, z);
  work.forward_bytes += z.n * z.e * (z.fc1 + z.ffn);
  work.backward_bytes += z.n * z.e * (2 * z.fc1 + z.ffn);
  work.forward_kernels += 1;
  work.backward_kernels += 1;
  work.products = {{"fc1", z.n, z.fc1, z.h, LinearCut::kColumns, z.whole},
                   {"fc2", z.n, z.h, z.ffn, LinearCut::kRows, z.whole}};
  return work;
}

Work head_work(const config::Run& run) {
  const Sizes z(run);
  Work work;
  add_norm(work, z);
  const double rows = static_cast<double>(padded_vocab_size(z.m, static_cast<int>(z.t))) / z.t;
  const double logits = z.n * rows * z.e;
  work.forward_bytes += 2 * logits;
  work.backward_bytes += 2 * logits;
  work.forward_kernels += 4;
  work.backward_kernels += 1;
  work.products = {{"output", z.n, rows, z.h, LinearCut::kColumns, z.whole}};
  return work;
}

std::vector<RepeatedWork> stage_work(const config::Run& run, const StageBlocks& stage) {
  std::vector<RepeatedWork> parts;
  if (stage.embedding) parts.push_back({embedding_work(run), 1});
  if (stage.num_layers > 0) {
    const auto layers = static_cast<double>(stage.num_layers);
    const LayerCounts counts = layers_made_again(run, stage);
    const auto again = static_cast<double>(counts.dense + counts.experts);
    const Work attention = attention_work(run);
    parts.push_back({attention, layers, true, again});
    parts.push_back({mlp_work(run), layers, true, run.recompute.selects("mlp") ? layers : again});
    Work core, norm;
    core.attention_flops = attention.attention_flops;
    norm.forward_bytes = 2 * Sizes(run).hidden;
    norm.forward_kernels = 1;
    if (run.recompute.selects("core_attn")) parts.push_back({core, 0, true, layers});
    if (run.recompute.selects("layernorm")) parts.push_back({norm, 0, true, 2 * layers});
  }
  if (stage.head) parts.push_back({head_work(run), 1});
  return parts;
}

}  // namespace colonnade::plan
