// See latent_heads.h.
#include "colonnade/ops/latent_heads.h"

#include <ATen/ops/empty.h>

#include "colonnade/base/error.h"
#include "colonnade/ops/apply_rotary.h"
#include "colonnade/ops/autograd.h"

namespace colonnade::ops {
namespace {

struct SavedRotary {
  RotaryTable table;
  Tensor positions;
  std::int64_t heads;
  LatentHead head;
};

/// View of [s, b, n d] as [s, b, n, d].
Tensor split_heads(const Tensor& x_sbx, std::int64_t heads) {
  return x_sbx.unflatten(-1, {heads, x_sbx.size(-1) / heads});
}

/// Source channels [from, from + count) and destination channels from `to` on.
struct Channels {
  std::int64_t from, count, to;
};

/// Copies channels of x to y, both [s, b, n, d].
void copy_channels(const Tensor& x, const Tensor& y, const Channels& c) {
  apply_rotary(x.narrow(-1, c.from, c.count), y.narrow(-1, c.to, c.count), RotaryTable(), Tensor(),
               /*inverse=*/false);
}
/// Same, with rotary embedding or its inverse.
void rotate_channels(const Tensor& x, const Tensor& y, const Channels& c, const SavedRotary& args,
                     bool inverse) {
  apply_rotary(x.narrow(-1, c.from, c.count), y.narrow(-1, c.to, c.count), args.table, args.positions,
               inverse);
}

struct LatentFunction : torch::autograd::Function<LatentFunction> {
  static variable_list forward(AutogradContext* ctx, const Tensor& q_flat, const Tensor& kv_flat,
                               const Tensor& key_flat, const SavedRotary& args) {
    save_value(ctx, args);
    const auto [nope, rope, value] = args.head;
    const Tensor q_in = split_heads(with_unit_stride(q_flat), args.heads);
    const Tensor kv_in = split_heads(with_unit_stride(kv_flat), args.heads);
    const Tensor key = with_unit_stride(key_flat).unsqueeze(2);
    const std::int64_t s = q_in.size(0), b = q_in.size(1), n = args.heads;
    const Tensor q = at::empty({b, n, s, nope + rope}, q_in.options());
    const Tensor k = at::empty({b, n, s, nope + rope}, q_in.options());
    const Tensor v = at::empty({b, n, s, value}, q_in.options());
    copy_channels(q_in, as_sbnd(q), {0, nope, 0});
    rotate_channels(q_in, as_sbnd(q), {nope, rope, nope}, args, false);
    copy_channels(kv_in, as_sbnd(k), {0, nope, 0});
    copy_channels(kv_in, as_sbnd(v), {nope, value, 0});
    const Tensor rotated = at::empty(key.sizes(), key.options());
    rotate_channels(key, rotated, {0, rope, 0}, args, false);
    as_sbnd(k).narrow(-1, nope, rope).copy_(rotated.expand({s, b, n, rope}));
    return {q, k, v};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto args = saved_value<SavedRotary>(ctx);
    const auto [nope, rope, value] = args.head;
    const Tensor q = as_sbnd(with_unit_stride(grads[0]));
    const Tensor k = as_sbnd(with_unit_stride(grads[1]));
    const Tensor v = as_sbnd(with_unit_stride(grads[2]));
    const std::int64_t s = q.size(0), b = q.size(1), n = args.heads;
    const Tensor grad_q = at::empty({s, b, n * (nope + rope)}, q.options());
    const Tensor grad_kv = at::empty({s, b, n * (nope + value)}, q.options());
    copy_channels(q, split_heads(grad_q, n), {0, nope, 0});
    rotate_channels(q, split_heads(grad_q, n), {nope, rope, nope}, args, true);
    copy_channels(k, split_heads(grad_kv, n), {0, nope, 0});
    copy_channels(v, split_heads(grad_kv, n), {0, value, nope});
    const Tensor sum = k.narrow(-1, nope, rope).sum(2, /*keepdim=*/true);
    const Tensor grad_key = at::empty({s, b, 1, rope}, q.options());
    rotate_channels(with_unit_stride(sum), grad_key, {0, rope, 0}, args, true);
    return {grad_q, grad_kv, grad_key.squeeze(2), Tensor()};
  }
};

}  // namespace

Qkv latent_heads(const Tensor& q, const Tensor& kv, const Tensor& key, std::int64_t heads,
                 const LatentHead& head, const RotaryTable& table, const Tensor& positions) {
  const auto [nope, rope, value] = head;
  COL_CHECK(
      q.dim() == 3 && kv.dim() == 3 && key.dim() == 3 && q.size(2) == heads * (nope + rope) &&
          kv.size(2) == heads * (nope + value) && key.size(2) == rope && kv.size(0) == q.size(0) &&
          key.size(0) == q.size(0) && kv.size(1) == q.size(1) && key.size(1) == q.size(1),
      "inputs of latent_heads must be [s, b, {} heads of {} + {}], [s, b, heads of {} + {}] and [s, b, {}]; "
      "got {}, {} and {}",
      heads, nope, rope, nope, value, rope, c10::str(q.sizes()), c10::str(kv.sizes()), c10::str(key.sizes()));
  const Tensor checked = checked_positions(table, positions, q.size(0), q.size(1), rope);
  const variable_list parts = LatentFunction::apply(q, kv, key, SavedRotary{table, checked, heads, head});
  return {parts[0], parts[1], parts[2]};
}

}  // namespace colonnade::ops
