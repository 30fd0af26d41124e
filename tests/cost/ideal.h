// Ideal hardware without losses, and runs for it.
#pragma once

#include "colonnade/config/run.h"
#include "colonnade/cost/hardware.h"
#include "colonnade/cost/model_cost.h"
#include "support/presets.h"

namespace colonnade::test {

/// No losses; memory, links and fp32 are practically infinite. A test slows down the part it measures.
inline cost::Hardware ideal() {
  const cost::Link link{1e30, 1, 0};
  cost::Hardware h{.name = "ideal",
                   .devices_per_node = 8,
                   .memory_bytes = 1e12,
                   .memory_bandwidth = 1e30,
                   .memory_share = 1,
                   .peak_flops = 1e12,
                   .matmul_curve = {{1, 1}},
                   .fp32_flops = 1e30,
                   .sustained_share = 1,
                   .attention_forward = 1,
                   .attention_backward = 1};
  h.intra_node = h.inter_node = link;
  return h;
}

/// The same with free matmuls and attention.
inline cost::Hardware instant() {
  cost::Hardware h = ideal();
  h.peak_flops = 1e30;
  return h;
}

inline config::Run run_of(const config::Model& model, const config::Parallel& parallel, std::int64_t seq,
                          std::int64_t micro, std::int64_t global) {
  config::Run run;
  run.model = model;
  run.parallel = parallel;
  run.training.seq_length = seq;
  run.training.micro_batch_size = micro;
  run.training.global_batch_size = global;
  return run;
}

/// Compute of sublayer `index` of a layer, with its norm.
inline cost::BlockCompute sublayer_compute(const config::Run& run, std::int64_t layer, std::size_t index) {
  std::vector<cost::RepeatedCompute> parts;
  cost::ModelCost(run).layer(layer).add_compute(cost::AttentionKernel::kUnfused, parts);
  return parts.at(index).compute;
}

}  // namespace colonnade::test
