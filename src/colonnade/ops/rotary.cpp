// Rotary tables, and the autograd functions around kernels/rotary.
#include "colonnade/ops/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "colonnade/base/error.h"
#include "colonnade/config/attention.h"
#include "colonnade/config/layer_pattern.h"
#include "colonnade/ops/apply_rotary.h"
#include "colonnade/ops/autograd.h"

namespace colonnade::ops {
namespace {

/// Llama 3 scaling: long wavelengths are stretched by the factor, short ones kept, those between blended.
double llama3_scaled(double frequency, const config::Model& model) {
  const double old_length = static_cast<double>(model.rope_original_max_position_embeddings);
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < old_length / model.rope_high_freq_factor) return frequency;
  if (wavelength > old_length / model.rope_low_freq_factor) return frequency / model.rope_scaling_factor;
  const double smooth = (old_length / wavelength - model.rope_low_freq_factor) /
                        (model.rope_high_freq_factor - model.rope_low_freq_factor);
  return (1 - smooth) * frequency / model.rope_scaling_factor + smooth * frequency;
}

/// YaRN: fraction of frequency i of `half` that is kept; the rest is divided by the factor.
class YarnBlend {
 public:
  YarnBlend(const config::Model& model, std::int64_t half) {
    const auto index = [&](double rotations) {
      const double length = static_cast<double>(model.yarn_original_max_position_embeddings);
      return static_cast<double>(half) * std::log(length / (2 * std::numbers::pi * rotations)) /
             std::log(model.rotary_base);
    };
    first_ = index(model.yarn_beta_fast);
    last_ = index(model.yarn_beta_slow);
    if (model.yarn_correction_range_round_to_int) first_ = std::floor(first_), last_ = std::ceil(last_);
    first_ = std::max(first_, 0.0);
    last_ = std::min(last_, static_cast<double>(2 * half - 1));
    if (first_ == last_) last_ += 0.001;
  }
  [[nodiscard]] double kept_fraction(std::int64_t i) const {
    return 1 - std::clamp((static_cast<double>(i) - first_) / (last_ - first_), 0.0, 1.0);
  }

 private:
  double first_, last_;
};

/// LongRoPE: divisors of the frequencies and factor on cosines and sines.
struct LongRope {
  LongRope(const config::Model& model, std::int64_t half, std::int64_t sequence) {
    if (!model.uses_longrope()) return;
    const auto original = static_cast<double>(model.longrope_original_max_position_embeddings);
    const bool is_long = static_cast<double>(sequence) > original;
    const std::string& text = is_long ? model.longrope_long_factor : model.longrope_short_factor;
    const auto factors = config::parse_numbers(text);
    COL_CHECK(factors && std::ssize(*factors) == half, "LongRoPE must have {} factors; got {}", half, text);
    divisors = *factors;
    const double ratio = static_cast<double>(model.max_position_embeddings) / original;
    scale = model.longrope_attention_factor.value_or(
        ratio <= 1 ? 1 : std::sqrt(1 + std::log(ratio) / std::log(original)));
  }
  [[nodiscard]] double divisor(std::int64_t i) const {
    return divisors.empty() ? 1 : divisors[static_cast<std::size_t>(i)];
  }
  std::vector<double> divisors;
  double scale = 1;
};

/// Factor on the queries at each position, fp32 [length].
Tensor query_scale(const config::Model& model, std::int64_t length) {
  const Tensor scale = at::empty({length}, at::kFloat);
  for (std::int64_t p = 0; p < length; ++p) {
    const auto spans = static_cast<double>(p / model.yarn_original_max_position_embeddings);
    scale.mutable_data_ptr<float>()[p] =
        static_cast<float>(1 + model.query_scaling_beta * std::log(1 + spans));
  }
  return scale;
}

/// Saved arguments; an empty table means no rotation.
struct RotaryArgs {
  RotaryTable table;
  Tensor positions;
  std::int64_t heads = 0;
  std::int64_t groups = 0;
  std::int64_t head_dim = 0;
  bool gated = false;  ///< a gate of the size of the queries lies behind them
  [[nodiscard]] std::int64_t first_key() const { return (gated ? 2 : 1) * heads * head_dim; }
};

struct RotaryFunction : torch::autograd::Function<RotaryFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const RotaryArgs& args) {
    save_value(ctx, args);
    const Tensor y = at::empty(x.sizes(), x.options());
    apply_rotary(with_unit_stride(x), y, args.table, args.positions, /*inverse=*/false);
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto args = saved_value<RotaryArgs>(ctx);
    const Tensor grad_x = at::empty(grads[0].sizes(), grads[0].options());
    apply_rotary(with_unit_stride(grads[0]), grad_x, args.table, args.positions, /*inverse=*/true);
    return {grad_x, Tensor()};
  }
};

/// The n heads of qkv from column `from` on, as [s, b, n, d].
Tensor heads_at(const Tensor& qkv, std::int64_t from, std::int64_t n, std::int64_t d) {
  return qkv.narrow(-1, from, n * d).unflatten(-1, {n, d});
}

struct SplitFunction : torch::autograd::Function<SplitFunction> {
  static variable_list forward(AutogradContext* ctx, const Tensor& qkv_in, const RotaryArgs& args) {
    save_value(ctx, args);
    const Tensor qkv = with_unit_stride(qkv_in);
    const std::int64_t s = qkv.size(0);
    const std::int64_t b = qkv.size(1);
    const std::int64_t n = args.heads;
    const std::int64_t g = args.groups;
    const std::int64_t d = args.head_dim;
    const Tensor q = at::empty({b, n, s, d}, qkv.options());
    const Tensor k = at::empty({b, g, s, d}, qkv.options());
    const Tensor v = at::empty({b, g, s, d}, qkv.options());
    apply_rotary(heads_at(qkv, 0, n, d), as_sbnd(q), args.table.of_queries(), args.positions, false);
    const std::int64_t first_key = args.first_key();
    apply_rotary(heads_at(qkv, first_key, g, d), as_sbnd(k), args.table, args.positions, false);
    apply_rotary(heads_at(qkv, first_key + g * d, g, d), as_sbnd(v), {}, {}, false);
    if (!args.gated) return {q, k, v};
    return {q, k, v, qkv.narrow(-1, n * d, n * d).clone(at::MemoryFormat::Contiguous)};
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto args = saved_value<RotaryArgs>(ctx);
    const std::int64_t n = args.heads;
    const std::int64_t g = args.groups;
    const std::int64_t d = args.head_dim;
    const std::int64_t first_key = args.first_key();
    const Tensor grad =
        at::empty({grads[0].size(2), grads[0].size(0), first_key + 2 * g * d}, grads[0].options());
    apply_rotary(as_sbnd(with_unit_stride(grads[0])), heads_at(grad, 0, n, d), args.table.of_queries(),
                 args.positions, true);
    apply_rotary(as_sbnd(with_unit_stride(grads[1])), heads_at(grad, first_key, g, d), args.table,
                 args.positions, true);
    apply_rotary(as_sbnd(with_unit_stride(grads[2])), heads_at(grad, first_key + g * d, g, d), {}, {}, true);
    if (args.gated) grad.narrow(-1, n * d, n * d).copy_(grads[3]);
    return {grad, Tensor()};
  }
};

variable_list split(const Tensor& qkv_sbx, RotaryArgs args, const RotaryTable* table,
                    const Tensor& positions) {
  COL_CHECK(
      qkv_sbx.dim() == 3 && qkv_sbx.size(2) == args.first_key() + 2 * args.groups * args.head_dim,
      "last dimension of qkv must be ({} heads + 2 groups) * head_dim = ({} * {} + 2 * {}) * {}; got {}",
      args.gated ? 2 : 1, args.gated ? 2 : 1, args.heads, args.groups, args.head_dim,
      c10::str(qkv_sbx.sizes()));
  if (table != nullptr) {
    args.table = *table;
    args.positions = checked_positions(*table, positions, qkv_sbx.size(0), qkv_sbx.size(1), args.head_dim);
  }
  return SplitFunction::apply(qkv_sbx, args);
}

}  // namespace

RotaryTable rotary_table(const config::Model& model, std::int64_t length, at::Device device,
                         std::int64_t sequence) {
  const std::int64_t half = model.rotary_channels() / 2;
  const at::Tensor cos = at::empty({length, half}, at::kFloat);
  const at::Tensor sin = at::empty({length, half}, at::kFloat);
  auto* const cos_at = cos.mutable_data_ptr<float>();
  auto* const sin_at = sin.mutable_data_ptr<float>();
  const config::Rotary kind = config::rotary_of(model);
  const bool yarn = model.uses_yarn() && model.rotary_scaling_factor > 1;
  const double yarn_factor = yarn ? model.rotary_scaling_factor : 1.0;
  const double interpolation = kind.from_position_embedding ? model.rotary_seq_len_interpolation_factor : 1.0;
  const LongRope longrope(model, half, sequence);
  const double mscale = longrope.scale * yarn_mscale(yarn_factor, model.mscale) /
                        yarn_mscale(yarn_factor, model.mscale_all_dim);
  const YarnBlend blend(model, half);
  for (std::int64_t i = 0; i < half; ++i) {
    double frequency = std::pow(model.rotary_base, -static_cast<double>(i) / static_cast<double>(half));
    if (model.use_rope_scaling && kind.from_position_embedding) frequency = llama3_scaled(frequency, model);
    frequency /= longrope.divisor(i);
    if (yarn) frequency *= blend.kept_fraction(i) + (1 - blend.kept_fraction(i)) / yarn_factor;
    // Megatron computes frequencies, positions and angles in fp32; this rounding is part of the model.
    const auto rounded = static_cast<float>(frequency);
    for (std::int64_t p = 0; p < length; ++p) {
      const auto position = static_cast<float>(p) * static_cast<float>(1.0 / interpolation);
      const float angle = position * rounded;
      cos_at[p * half + i] = static_cast<float>(mscale * std::cos(static_cast<double>(angle)));
      sin_at[p * half + i] = static_cast<float>(mscale * std::sin(static_cast<double>(angle)));
    }
  }
  RotaryTable table{cos.to(device), sin.to(device), kind.interleaved, {}, {}};
  if (model.query_scaling_beta == 0) return table;
  const at::Tensor scale = query_scale(model, length).unsqueeze(1);
  table.query_cos = (cos * scale).to(device);
  table.query_sin = (sin * scale).to(device);
  return table;
}

double yarn_mscale(double factor, double weight) {
  return factor > 1 ? 1 + 0.1 * weight * std::log(factor) : 1.0;
}

Tensor rotary(const Tensor& x_sbnd, const RotaryTable& table, const Tensor& positions) {
  COL_CHECK(x_sbnd.dim() == 4, "rotary input must be [s, b, n, d]; got {}", c10::str(x_sbnd.sizes()));
  return RotaryFunction::apply(x_sbnd, RotaryArgs{table, checked_positions(table, positions, x_sbnd.size(0),
                                                                           x_sbnd.size(1), x_sbnd.size(3))});
}

Qkv split_rotary(const Tensor& qkv_sbx, std::int64_t heads, std::int64_t groups, std::int64_t head_dim,
                 const RotaryTable* table, const Tensor& positions) {
  const variable_list parts = split(qkv_sbx, {{}, {}, heads, groups, head_dim}, table, positions);
  return {parts[0], parts[1], parts[2]};
}

GatedQkv split_gated_rotary(const Tensor& qkv_sbx, std::int64_t heads, std::int64_t groups,
                            std::int64_t head_dim, const RotaryTable* table, const Tensor& positions) {
  const variable_list parts = split(qkv_sbx, {{}, {}, heads, groups, head_dim, true}, table, positions);
  return {{parts[0], parts[1], parts[2]}, parts[3]};
}

}  // namespace colonnade::ops
