// Helpers for tests of ops: unsharded parameters, gradients by a random probe, tolerances.
#pragma once

#include <gtest/gtest.h>
#include <omp.h>

#include <functional>
#include <memory>
#include <vector>

#include "colonnade/base/error.h"
#include "colonnade/tensor/parameter.h"
#include "support/device.h"

namespace colonnade::test {

using at::Tensor;

/// An unsharded parameter with the given value.
inline std::unique_ptr<tensor::Parameter> parameter(const Tensor& value) {
  layout::ParamSpec spec;
  spec.name = "test";
  spec.shape = value.sizes().vec();
  auto p = std::make_unique<tensor::Parameter>(spec, layout::Position(), value.options());
  if (!value.is_meta()) p->value.data().copy_(value);
  return p;
}

inline Tensor random(at::IntArrayRef shape, at::ScalarType type = at::kDouble) {
  return at::randn(shape, at::dtype(at::kDouble)).to(device(), type);
}

/// Gradients of sum(y * probe) with respect to `inputs`.
inline std::vector<Tensor> gradients(const Tensor& y, const Tensor& probe,
                                     const std::vector<Tensor>& inputs) {
  return torch::autograd::grad({y}, inputs, {probe.to(y.scalar_type())}, /*retain_graph=*/true, false, true);
}

/// Maximum difference relative to the largest expected element, on any devices.
inline double distance(const Tensor& got_in, const Tensor& expected_in) {
  const Tensor got = got_in.cpu(), expected = expected_in.cpu();
  if (got.sizes() != expected.sizes()) return 1e9;
  const double size = expected.numel() == 0 ? 1.0 : expected.to(at::kDouble).abs().max().item<double>();
  const double error = expected.numel() == 0
                           ? 0.0
                           : (got.to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>();
  return error / std::max(size, 1e-30);
}

/// Rounding tolerance of a dtype, relative to the largest element.
inline double tolerance(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return 1e-12;
    case at::kFloat:
      return device().is_cuda() ? 1e-5 : 4e-6;
    case at::kHalf:
      return 4e-3;
    default:
      return 2e-2;  // bf16
  }
}

inline const std::vector<at::ScalarType> kTypes{at::kDouble, at::kFloat, at::kBFloat16, at::kHalf};

/// Expects bitwise equal results of f with 1, 2 and 3 threads.
inline void expect_bitwise_equal_for_all_threads(const std::function<Tensor()>& f) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const Tensor single = f();
  for (const int threads : {2, 3}) {
    omp_set_num_threads(threads);
    EXPECT_TRUE(at::equal(single, f())) << threads << " threads";
  }
  omp_set_num_threads(before);
}

}  // namespace colonnade::test
