// See fill.h.
#include "colonnade/tensor/fill.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "colonnade/base/error.h"
#include "colonnade/base/philox.h"
#include "colonnade/tensor/normal.h"

namespace colonnade::tensor {
namespace {

std::int64_t product(const std::vector<std::int64_t>& shape, std::size_t from, std::size_t to) {
  return std::accumulate(shape.begin() + static_cast<std::ptrdiff_t>(from),
                         shape.begin() + static_cast<std::ptrdiff_t>(to), std::int64_t{1},
                         std::multiplies<>());
}

/// The local part as [outer, cut, inner]: rows of `inner` elements that lie together globally too.
struct Geometry {
  std::int64_t outer = 1, local_cut = 1, global_cut = 1, inner = 1;
};

Geometry geometry(const plan::ParamSpec& spec, const plan::Shard& shard) {
  Geometry g;
  if (spec.split_dim < 0) {
    g.inner = spec.numel();
    return g;
  }
  const auto dim = static_cast<std::size_t>(spec.split_dim);
  g.outer = product(spec.shape, 0, dim);
  g.local_cut = shard.shape[dim];
  g.global_cut = spec.shape[dim];
  g.inner = product(spec.shape, dim + 1, spec.shape.size());
  return g;
}

/// Calls body(local element, global element, count) for every contiguous run of the local part.
template <typename Body>
void for_each_run(const plan::ParamSpec& spec, const plan::Shard& shard, const Body& body) {
  const Geometry g = geometry(spec, shard);
  if (spec.split_dim < 0) return body(0, 0, g.inner);
  for (std::int64_t o = 0; o < g.outer; ++o)
    for (const plan::Run& run : shard.runs)
      body((o * g.local_cut + run.local) * g.inner, (o * g.global_cut + run.global) * g.inner,
           run.length * g.inner);
}

}  // namespace

void fill_initial(at::Tensor local, const plan::ParamSpec& spec, const plan::Shard& shard,
                  std::uint64_t seed) {
  COL_CHECK(local.is_contiguous() && local.device().is_cpu(),
            "fill of {}: must get a contiguous CPU tensor; got a {} one on {}; fill it before it moves",
            spec.name, local.is_contiguous() ? "contiguous" : "strided", local.device().str());
  local.zero_();
  if (spec.init.kind == plan::InitKind::kZero) return;
  at::Tensor values = local.scalar_type() == at::kFloat ? local : at::zeros(local.sizes(), at::kFloat);
  float* out = values.data_ptr<float>();
  const Philox draw{seed * 0x9E3779B97F4A7C15ULL ^ stable_hash(spec.name)};
  constexpr std::int64_t kGrain = 1 << 15;
  for_each_run(spec, shard, [&](std::int64_t to, std::int64_t from, std::int64_t count) {
    if (spec.init.kind == plan::InitKind::kOne) return void(std::fill_n(out + to, count, 1.0F));
    at::parallel_for(0, count, kGrain, [&](std::int64_t begin, std::int64_t end) {
      normal_run(draw, from + begin, end - begin, static_cast<float>(spec.init.std), out + to + begin);
    });
  });
  if (!values.is_same(local)) local.copy_(values);
}

}  // namespace colonnade::tensor
