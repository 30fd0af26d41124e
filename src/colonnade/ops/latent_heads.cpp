// See latent_heads.h.
#include "colonnade/ops/latent_heads.h"

#include <ATen/ops/empty.h>

#include "colonnade/base/error.h"
#include "colonnade/ops/autograd.h"
#include "colonnade/ops/turn.h"

namespace colonnade::ops {
namespace {

struct KeptTurn {
  RotaryTable table;
  Tensor positions;
  std::int64_t heads;
  LatentHead head;
};

/// [s, b, n d] as [s, b, n, d].
Tensor apart(const Tensor& x_sbx, std::int64_t heads) {
  return x_sbx.unflatten(-1, {heads, x_sbx.size(-1) / heads});
}

/// Channels [from, from + count) of one tensor, those from `to` on of another.
struct Channels {
  std::int64_t from, count, to;
};

/// Moves channels of x to y, both [s, b, n, d].
void move(const Tensor& x, const Tensor& y, const Channels& c) {
  turn(x.narrow(-1, c.from, c.count), y.narrow(-1, c.to, c.count), RotaryTable(), Tensor(),
       /*inverse=*/false);
}
/// The same, turned by their positions, or back.
void move_turned(const Tensor& x, const Tensor& y, const Channels& c, const KeptTurn& args, bool inverse) {
  turn(x.narrow(-1, c.from, c.count), y.narrow(-1, c.to, c.count), args.table, args.positions, inverse);
}

struct LatentRule : torch::autograd::Function<LatentRule> {
  static variable_list forward(AutogradContext* ctx, const Tensor& q_given, const Tensor& kv_given,
                               const Tensor& key_given, const KeptTurn& args) {
    keep(ctx, args);
    const auto [plain, turned, value] = args.head;
    const Tensor q_in = apart(adjacent(q_given), args.heads);
    const Tensor kv_in = apart(adjacent(kv_given), args.heads);
    const Tensor key = adjacent(key_given).unsqueeze(2);
    const std::int64_t s = q_in.size(0), b = q_in.size(1), n = args.heads;
    const Tensor q = at::empty({b, n, s, plain + turned}, q_in.options());
    const Tensor k = at::empty({b, n, s, plain + turned}, q_in.options());
    const Tensor v = at::empty({b, n, s, value}, q_in.options());
    move(q_in, seen_sbnd(q), {0, plain, 0});
    move_turned(q_in, seen_sbnd(q), {plain, turned, plain}, args, false);
    move(kv_in, seen_sbnd(k), {0, plain, 0});
    move(kv_in, seen_sbnd(v), {plain, value, 0});
    const Tensor one = at::empty(key.sizes(), key.options());
    move_turned(key, one, {0, turned, 0}, args, false);
    seen_sbnd(k).narrow(-1, plain, turned).copy_(one.expand({s, b, n, turned}));
    return {q, k, v};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto args = kept<KeptTurn>(ctx);
    const auto [plain, turned, value] = args.head;
    const Tensor q = seen_sbnd(adjacent(grads[0]));
    const Tensor k = seen_sbnd(adjacent(grads[1]));
    const Tensor v = seen_sbnd(adjacent(grads[2]));
    const std::int64_t s = q.size(0), b = q.size(1), n = args.heads;
    const Tensor grad_q = at::empty({s, b, n * (plain + turned)}, q.options());
    const Tensor grad_kv = at::empty({s, b, n * (plain + value)}, q.options());
    move(q, apart(grad_q, n), {0, plain, 0});
    move_turned(q, apart(grad_q, n), {plain, turned, plain}, args, true);
    move(k, apart(grad_kv, n), {0, plain, 0});
    move(v, apart(grad_kv, n), {0, value, plain});
    const Tensor sum = k.narrow(-1, plain, turned).sum(2, /*keepdim=*/true);
    const Tensor grad_key = at::empty({s, b, 1, turned}, q.options());
    move_turned(adjacent(sum), grad_key, {0, turned, 0}, args, true);
    return {grad_q, grad_kv, grad_key.squeeze(2), Tensor()};
  }
};

}  // namespace

Qkv latent_heads(const Tensor& q, const Tensor& kv, const Tensor& key, std::int64_t heads,
                 const LatentHead& head, const RotaryTable& table, const Tensor& positions) {
  const auto [plain, turned, value] = head;
  COL_CHECK(
      q.dim() == 3 && kv.dim() == 3 && key.dim() == 3 && q.size(2) == heads * (plain + turned) &&
          kv.size(2) == heads * (plain + value) && key.size(2) == turned && kv.size(0) == q.size(0) &&
          key.size(0) == q.size(0) && kv.size(1) == q.size(1) && key.size(1) == q.size(1),
      "latent_heads must be [s, b, {} heads of {} + {}], [s, b, heads of {} + {}] and [s, b, {}]; got {}, {} "
      "and {}",
      heads, plain, turned, plain, value, turned, c10::str(q.sizes()), c10::str(kv.sizes()),
      c10::str(key.sizes()));
  const Tensor checked = checked_positions(table, positions, q.size(0), q.size(1), turned);
  const variable_list parts = LatentRule::apply(q, kv, key, KeptTurn{table, checked, heads, head});
  return {parts[0], parts[1], parts[2]};
}

}  // namespace colonnade::ops
