// What the tests of ops share: parameters without a mesh, gradients by a random probe, tolerances.
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

/// A parameter that one rank holds whole, with the given value.
inline std::unique_ptr<tensor::Parameter> parameter(const Tensor& value) {
  layout::ParamSpec spec;
  spec.name = "test";
  spec.shape = value.sizes().vec();
  auto made = std::make_unique<tensor::Parameter>(spec, layout::Position(), value.options());
  if (!value.is_meta()) made->value.data().copy_(value);
  return made;
}

inline Tensor random(at::IntArrayRef shape, at::ScalarType type = at::kDouble) {
  return at::randn(shape, at::dtype(at::kDouble)).to(device(), type);
}

/// Gradients of sum(y * probe) with respect to `inputs`.
inline std::vector<Tensor> gradients(const Tensor& y, const Tensor& probe,
                                     const std::vector<Tensor>& inputs) {
  return torch::autograd::grad({y}, inputs, {probe.to(y.scalar_type())}, /*retain_graph=*/true, false, true);
}

/// Largest difference relative to the largest element expected, wherever the two lie.
inline double distance(const Tensor& got_anywhere, const Tensor& expected_anywhere) {
  const Tensor got = got_anywhere.cpu(), expected = expected_anywhere.cpu();
  if (got.sizes() != expected.sizes()) return 1e9;
  const double size = expected.numel() == 0 ? 1.0 : expected.to(at::kDouble).abs().max().item<double>();
  const double off = expected.numel() == 0
                         ? 0.0
                         : (got.to(at::kDouble) - expected.to(at::kDouble)).abs().max().item<double>();
  return off / std::max(size, 1e-30);
}

/// What rounding to a type may cost, relative to the largest element.
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

/// The result of f with one and with two threads, which must be equal bits.
inline void expect_same_bits_for_all_threads(const std::function<Tensor()>& f) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const Tensor one = f();
  for (const int threads : {2, 3}) {
    omp_set_num_threads(threads);
    EXPECT_TRUE(at::equal(one, f())) << threads << " threads";
  }
  omp_set_num_threads(before);
}

}  // namespace colonnade::test
