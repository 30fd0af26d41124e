// See fill.h.
#include "colonnade/tensor/fill.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/base/philox.h"
#include "colonnade/tensor/normal.h"

namespace colonnade::tensor {
namespace {

void uniform_run(const Philox& draw, std::int64_t first, std::int64_t count, float bound, float* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto element = static_cast<std::uint64_t>(first + i);
    out[i] = (2 * uniform(draw(element / 4)[element % 4]) - 1) * bound;
  }
}

}  // namespace

void fill_initial(at::Tensor local, const layout::ParamSpec& spec, const layout::Shard& shard,
                  std::uint64_t seed) {
  COL_CHECK(
      local.is_contiguous() && local.device().is_cpu(),
      "initial values of {} must go to a contiguous CPU tensor; got a {} one on {}; initialize before moving",
      spec.name, local.is_contiguous() ? "contiguous" : "strided", local.device().str());
  local.zero_();
  if (spec.init.kind == layout::InitKind::kZero) return;
  at::Tensor values = local.scalar_type() == at::kFloat ? local : at::zeros(local.sizes(), at::kFloat);
  float* out = values.data_ptr<float>();
  const Philox draw{seed * 0x9E3779B97F4A7C15ULL ^ stable_hash(spec.name)};
  constexpr std::int64_t kGrain = 1 << 15;
  const auto fill_run = [&](const layout::ElementSpan& run) {
    float* to = out + run.local;
    if (spec.init.kind == layout::InitKind::kOne) return void(std::fill_n(to, run.length, 1.0F));
    at::parallel_for(0, run.length, kGrain, [&](std::int64_t begin, std::int64_t end) {
      const bool is_uniform = spec.init.kind == layout::InitKind::kUniform;
      (is_uniform ? uniform_run : normal_run)(draw, run.global + begin, end - begin,
                                              static_cast<float>(spec.init.std), to + begin);
    });
  };
  for (const layout::ShardBox& part : shard.boxes) layout::for_each_span(spec, shard, part, fill_run);
  if (!values.is_same(local)) local.copy_(values);
}

}  // namespace colonnade::tensor
