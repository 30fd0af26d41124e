// Megatron's memory estimate (max over ranks). See memory.h.
#include <algorithm>

#include "colonnade/cost/flops.h"
#include "colonnade/cost/memory.h"
#include "colonnade/layout/buckets.h"
#include "colonnade/layout/params/gpt.h"

namespace colonnade::cost {
namespace {

/// Parameters of a layer's multi-latent attention, as in Megatron's estimate.
double latent_parameters(const config::Model& m, double norm) {
  const auto real = [](auto value) { return static_cast<double>(value); };
  const double h = real(m.hidden_size), n = real(m.num_attention_heads), d = real(m.kv_channels);
  const double q = real(m.latent.q_lora_rank), c = real(m.latent.kv_lora_rank), v = real(m.latent.v_head_dim);
  return (q > 0 ? q * (h + n * d + norm) : h * n * d) +
         c * (h + n * (real(m.latent.qk_head_dim) + v) + norm) + h * real(m.latent.qk_pos_emb_head_dim) +
         n * v * h;
}

}  // namespace

TheoreticalMemory theoretical_memory(const config::Run& run, bool selective_recompute) {
  const config::Model& m = run.model;
  const auto real = [](auto value) { return static_cast<double>(value); };
  const double tp = run.parallel.tensor_model_parallel_size;
  const double pp = run.parallel.pipeline_model_parallel_size;
  const double h = real(m.hidden_size), layers = real(m.num_layers), ffn = real(m.ffn_hidden_size);
  const double vocabulary = real(padded_vocab_size(m, run.parallel.tensor_model_parallel_size));
  const double heads = real(m.num_attention_heads), groups = real(m.num_query_groups);
  const double norm = m.normalization == config::Normalization::kLayerNorm ? 2 : 1;
  const bool untied = m.untie_embeddings_and_output_weights;

  const double attention = m.latent.enabled
                               ? latent_parameters(m, norm)
                               : 2 * h * h * (1 + groups / heads) * (real(m.kv_channels) * heads / h);
  const double mlp = 2 * h * ffn * (m.is_gated() ? 1.5 : 1);
  const double whole = 2 * h * norm * layers + h * norm;
  double parameters = ((attention + mlp) * layers / pp + h * vocabulary) / tp + whole / pp;
  if (untied && pp == 1) parameters += h * vocabulary / tp;
  const double per_parameter = layout::sharding_of(run.parallel) >= layout::Sharding::kOptimizer
                                   ? 6 + 12.0 / run.parallel.data_parallel_size()
                                   : 18;

  const double sb = real(run.training.seq_length * run.training.micro_batch_size);
  const int chunks = static_cast<int>(layout::split_stages(m, run.parallel).size()) / static_cast<int>(pp);
  double layer_bytes = selective_recompute ? sb * h * (18 + 4 * ffn / h) : sb * h * (10 + 24 / tp);
  double activations = layer_bytes * layers + 8 * sb * pp + sb * h * pp;
  if (chunks > 1)
    activations *= 1 + (pp - 1) / (pp * chunks);
  else if (pp > 1)
    activations *= std::min(1.0, schedule_of(run).microbatches / pp);
  if (pp == 1)
    activations +=
        selective_recompute ? sb * h * 4 * (1 + vocabulary / h) : 2 * (sb * vocabulary / tp + sb * h);
  activations *= selective_recompute ? 1 / tp : 1.05;
  return {.weights_and_optimizer = parameters * per_parameter, .activations = activations};
}

}  // namespace colonnade::cost
