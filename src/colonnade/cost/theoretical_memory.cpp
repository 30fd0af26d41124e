// Megatron's memory estimate (max over ranks). See memory.h.
#include <algorithm>

#include "colonnade/cost/flops.h"
#include "colonnade/cost/memory.h"
#include "colonnade/cost/model_cost.h"
#include "colonnade/layout/buckets.h"

namespace colonnade::cost {

TheoreticalMemory theoretical_memory(const config::Run& run, bool selective_recompute) {
  const config::Model& m = run.model;
  const auto real = [](auto value) { return static_cast<double>(value); };
  const double tp = run.parallel.tensor_model_parallel_size;
  const double pp = run.parallel.pipeline_model_parallel_size;
  const double h = real(m.hidden_size), layers = real(m.num_layers), ffn = real(m.ffn_hidden_size);
  const double vocabulary = real(padded_vocab_size(m, run.parallel.tensor_model_parallel_size));
  const double norm = m.normalization == config::Normalization::kLayerNorm ? 2 : 1;
  const bool untied = m.untie_embeddings_and_output_weights;

  const double whole = 2 * h * norm * layers + h * norm;
  double parameters = (ModelCost(run).layer(0).parameters() * layers / pp + h * vocabulary) / tp + whole / pp;
  if (untied && pp == 1) parameters += h * vocabulary / tp;
  const double per_parameter = layout::sharding_of(run.parallel) >= layout::Sharding::kOptimizer
                                   ? 6 + 12.0 / run.parallel.data_parallel_size()
                                   : 18;

  const double sb = real(run.training.seq_length * run.training.micro_batch_size);
  const int chunks = layout::num_stages(m, run.parallel) / static_cast<int>(pp);
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
