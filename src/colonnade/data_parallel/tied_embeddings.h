// Gradients of tied embeddings: parameters that several pipeline stages hold.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "colonnade/comm/group.h"
#include "colonnade/layout/param.h"

namespace colonnade::data_parallel {

/// Main gradient of a parameter that several stages hold, or this rank's shard of it.
struct TiedGradient {
  layout::HeldBy held_by;
  at::Tensor values;
  std::string name;  ///< of the parameter
};

/// Sums each gradient over the pipeline stages that hold the parameter: word embeddings of the first stage,
/// of the head and of MTP layers, and relative position biases. One all-reduce each, once per step, after the
/// reductions over replicas and tensor ranks, so that all holders get the same bits; one kind of parameter
/// after the other, because stages hold the kinds in different order. `stages`: groups of the holders;
/// absent: one stage. Source: Megatron's core/distributed/finalize_model_grads.py
/// (_allreduce_word_embedding_grads).
void all_reduce_over_stages(const std::map<layout::HeldBy, comm::Group>& stages,
                            const std::vector<TiedGradient>& gradients);

}  // namespace colonnade::data_parallel
