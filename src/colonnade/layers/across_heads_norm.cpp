// See across_heads_norm.h.
#include "colonnade/layers/across_heads_norm.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "colonnade/ops/autograd.h"
#include "colonnade/tensor/dtypes.h"
#include "colonnade/tensor/saved_value.h"

namespace colonnade::layers {
namespace {

/// The queries or the keys of this rank.
struct NormedHeads {
  tensor::Parameter* weight;
  std::int64_t first;  ///< in the last dimension
  double size;         ///< elements of all ranks
  double copies;       ///< ranks that hold the same heads
};

struct AcrossHeadsArgs {
  NormedHeads heads[2];
  double epsilon;
  bool zero_centered;
  comm::Group tp;
};

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor channels_of(const at::Tensor& x, const NormedHeads& heads) {
  return x.narrow(-1, heads.first, heads.weight->value.size(0));
}

at::Tensor gamma_of_heads(const at::Tensor& weight, const AcrossHeadsArgs& args, at::ScalarType type) {
  const at::Tensor gamma = weight.to(type);
  return args.zero_centered ? gamma + 1 : gamma;
}

/// Means [2, s, b, 1] over the heads of all ranks, from this rank's sums.
at::Tensor means_of(const at::Tensor& q_sum, const at::Tensor& k_sum, const AcrossHeadsArgs& args,
                    const char* what) {
  at::Tensor sums = at::stack({q_sum / args.heads[0].copies, k_sum / args.heads[1].copies});
  args.tp.all_reduce(sums, what).wait();
  sums.select(0, 0).div_(args.heads[0].size);
  sums.select(0, 1).div_(args.heads[1].size);
  return sums;
}

struct AcrossHeadsFunction : torch::autograd::Function<AcrossHeadsFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& qkv, const at::Tensor& q_weight,
                            const at::Tensor& k_weight, const AcrossHeadsArgs& args) {
    const at::ScalarType type = tensor::acc_type(qkv.scalar_type());
    const at::Tensor weights[2] = {q_weight, k_weight};
    at::Tensor x[2], sums[2];
    for (int i = 0; i < 2; ++i) {
      x[i] = channels_of(qkv, args.heads[i]).to(type);
      sums[i] = x[i].square().sum(-1, true);
    }
    const at::Tensor rstd =
        means_of(sums[0], sums[1], args, "mean squares of queries and keys").add_(args.epsilon).rsqrt_();
    at::Tensor y = qkv.clone(at::MemoryFormat::Contiguous);
    for (int i = 0; i < 2; ++i)
      channels_of(y, args.heads[i]).copy_(x[i] * rstd[i] * gamma_of_heads(weights[i], args, type));
    ctx->save_for_backward({qkv, q_weight, k_weight, rstd});
    tensor::save_value(ctx, args);
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto args = tensor::saved_value<AcrossHeadsArgs>(ctx);
    const at::Tensor &qkv = saved[0], &rstd = saved[3];
    const at::ScalarType type = tensor::acc_type(qkv.scalar_type());
    at::Tensor normed[2], scaled[2], sums[2];
    for (int i = 0; i < 2; ++i) {
      const at::Tensor grad = channels_of(grads[0], args.heads[i]).to(type);
      normed[i] = channels_of(qkv, args.heads[i]).to(type) * rstd[i];
      args.heads[i].weight->accumulate((grad * normed[i]).sum(at::IntArrayRef{0, 1}));
      scaled[i] = grad * gamma_of_heads(saved[1 + i], args, type);
      sums[i] = (scaled[i] * normed[i]).sum(-1, true);
    }
    const at::Tensor means = means_of(sums[0], sums[1], args, "gradients of norms of queries and keys");
    at::Tensor grad_qkv = grads[0].clone(at::MemoryFormat::Contiguous);
    for (int i = 0; i < 2; ++i)
      channels_of(grad_qkv, args.heads[i]).copy_((scaled[i] - normed[i] * means[i]) * rstd[i]);
    return {grad_qkv, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

AcrossHeadsNorm::AcrossHeadsNorm(const layout::NormParams& q, const layout::NormParams& k,
                                 const config::Model& model, const Context& context)
    : q_weight(context.make(q.weight)),
      k_weight(context.make(k.weight)),
      first_key_((model.attention_output_gate ? 2 : 1) * model.num_attention_heads / context.tp.size() *
                 model.kv_channels),
      q_size_(static_cast<double>(model.num_attention_heads * model.kv_channels)),
      k_size_(static_cast<double>(model.num_query_groups * model.kv_channels)),
      key_copies_(static_cast<double>(std::max<std::int64_t>(1, context.tp.size() / model.num_query_groups))),
      epsilon_(model.norm_epsilon),
      zero_centered_(model.apply_layernorm_1p),
      tp_(context.tp) {}

at::Tensor AcrossHeadsNorm::forward(const at::Tensor& qkv) const {
  return AcrossHeadsFunction::apply(
      qkv, q_weight->value, k_weight->value,
      AcrossHeadsArgs{{{q_weight.get(), 0, q_size_, 1.0}, {k_weight.get(), first_key_, k_size_, key_copies_}},
                      epsilon_,
                      zero_centered_,
                      tp_});
}

}  // namespace colonnade::layers
