// What tests of split layers share: parameters with equal values in every layout, and gradients put
// together from the parts of all ranks.
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

/// Normal numbers on device() that depend on the name and shape alone.
inline Tensor named_random(const std::string& name, at::IntArrayRef shape) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(stable_hash(name));
  return at::randn(shape, generator, at::dtype(at::kDouble)).to(device());
}

/// The whole of a parameter: norms around 1, everything else around 0.
inline Tensor whole_value(const layout::ParamSpec& spec) {
  const Tensor normal = named_random(spec.name, spec.shape);
  return spec.init.kind == layout::InitKind::kOne ? 1 + 0.3 * normal : 0.3 * normal;
}

/// This rank's part of `whole`; filling is zero.
inline Tensor local_part(const tensor::Parameter& p, const Tensor& whole) {
  Tensor local = at::zeros(p.shard.shape, whole.options());
  for (const layout::Part& part : p.shard.parts)
    tensor::box_of(local, part.local, part.length).copy_(tensor::box_of(whole, part.global, part.length));
  return local;
}

/// Gives every parameter its part of whole_value().
inline void randomize(const std::vector<tensor::Parameter*>& parameters) {
  const at::NoGradGuard no_grad;
  for (tensor::Parameter* p : parameters) p->value.copy_(local_part(*p, whole_value(p->spec)));
}

/// The gradient of the whole parameter: parts laid side by side, those of several holders and those
/// that the spec calls partial summed. Collective over tp.
inline Tensor whole_gradient(tensor::Parameter& p, const comm::Group& tp) {
  const at::NoGradGuard no_grad;
  const Tensor local = p.grad_to_add_to();
  Tensor whole = local.clone();
  if (p.spec.cut(layout::Axis::kTp) != nullptr) {
    whole = at::zeros(p.spec.shape, local.options());
    for (const layout::Part& part : p.shard.parts)
      tensor::box_of(whole, part.global, part.length).copy_(tensor::box_of(local, part.local, part.length));
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
