// See scaled.h.
#include "colonnade/optim/scaled.h"

#include <ATen/ops/zeros.h>

#include "colonnade/kernels/optimizer.h"

namespace colonnade::optim {
namespace {

kernels::StoredType stored_type_of(at::ScalarType type) {
  return type == at::kHalf ? kernels::StoredType::kHalf : kernels::StoredType::kFloat8;
}

}  // namespace

at::Tensor make_scale(at::ScalarType type, const at::Device& device) {
  if (type != at::kHalf && type != at::kFloat8_e4m3fn) return {};
  at::Tensor scale = at::zeros({2}, at::dtype(at::kFloat).device(device));
  scale[0].fill_(1.0);
  return scale;
}

at::Tensor unscaled(const at::Tensor& stored, const at::Tensor& scale) {
  return scale.defined() ? stored.to(at::kFloat).mul_(scale[0]) : stored;
}

void store(const at::Tensor& values, const at::Tensor& stored, const at::Tensor& scale) {
  if (!scale.defined() || values.is_meta() || values.numel() == 0) {
    stored.copy_(values);
    return;
  }
  const kernels::StoredType type = stored_type_of(stored.scalar_type());
  const at::Tensor wide = values.to(at::kFloat);
  const float factor = kernels::scale_for(wide.abs().max().item<float>(), type);
  const double largest = kernels::largest_quotient(type);
  stored.copy_(wide.mul(1.0 / factor).clamp_(-largest, largest));
  scale[0].fill_(factor);
}

}  // namespace colonnade::optim
