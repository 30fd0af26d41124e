// Helpers for tests of sharded layers: parameter values that are equal in every layout, and gradients
// gathered from all ranks.
#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "colonnade/base/philox.h"
#include "colonnade/comm/thread_ranks.h"
#include "colonnade/tensor/parameter.h"
#include "ops/support.h"
#include "support/device.h"

namespace colonnade::test {

/// Normal numbers on device() that depend only on name and shape.
inline Tensor named_random(const std::string& name, at::IntArrayRef shape) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(stable_hash(name));
  return at::randn(shape, generator, at::dtype(at::kDouble)).to(device());
}

/// Full value of a parameter: around 1 for norms, else around 0.
inline Tensor full_value(const layout::ParamSpec& spec) {
  const Tensor normal = named_random(spec.name, spec.shape);
  return spec.init.kind == layout::InitKind::kOne ? 1 + 0.3 * normal : 0.3 * normal;
}

/// This rank's shard of `whole`, zero in padding.
inline Tensor local_shard(const tensor::Parameter& p, const Tensor& whole) {
  Tensor local = at::zeros(p.shard.shape, whole.options());
  for (const layout::ShardBox& part : p.shard.boxes)
    tensor::box_view(local, part.local, part.length).copy_(tensor::box_view(whole, part.global, part.length));
  return local;
}

/// Sets every parameter to its shard of full_value().
inline void randomize(const std::vector<tensor::Parameter*>& parameters) {
  const at::NoGradGuard no_grad;
  for (tensor::Parameter* p : parameters) p->value.copy_(local_shard(*p, full_value(p->spec)));
}

/// Gradient of the full parameter: gathered from shards; summed over replicas and if the spec is partial over
/// tp. Collective over tp.
inline Tensor full_gradient(tensor::Parameter& p, const comm::Group& tp) {
  const at::NoGradGuard no_grad;
  const Tensor local = p.main_grad_for_add();
  Tensor whole = local.clone();
  if (p.spec.sharded_dim(layout::Axis::kTp) != nullptr) {
    whole = at::zeros(p.spec.shape, local.options());
    for (const layout::ShardBox& part : p.shard.boxes)
      tensor::box_view(whole, part.global, part.length)
          .copy_(tensor::box_view(local, part.local, part.length));
  } else if (!p.spec.partial.has(layout::Axis::kTp)) {
    return whole;
  }
  tp.all_reduce(whole, "whole gradient of " + p.spec.name).wait();
  return whole;
}

inline config::Parallel tensor_parallel(int tp, bool sequence_parallel) {
  config::Parallel parallel;
  parallel.world_size = tp;
  parallel.tensor_model_parallel_size = tp;
  parallel.sequence_parallel = sequence_parallel;
  return parallel;
}

}  // namespace colonnade::test
