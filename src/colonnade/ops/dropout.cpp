// Autograd function of dropout: backward regenerates the mask, so none is saved.
#include "colonnade/ops/dropout.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numbers>

#include "colonnade/kernels/dropout.h"
#include "colonnade/ops/autograd.h"
#include "colonnade/ops/column_sum.h"
#include "colonnade/ops/launch.h"

namespace colonnade::ops {
namespace {

/// Numbering of the rows of x for the random generator, and dropout parameters.
struct Rows {
  std::array<std::int64_t, 3> dims;
  std::array<std::int64_t, 3> row_steps;
  std::array<std::int64_t, 3> sample_steps;
  std::int64_t row_offset;
  std::int64_t col_offset;
  std::int64_t groups;
  std::uint64_t key;
  double p;
  Tensor samples;
  std::int64_t second_chunk_row = 0, second_chunk_begin = 0;  ///< second chunk along dims[1]
  double noise = 0;                                           ///< > 0: jitter instead of dropout

  [[nodiscard]] bool is_random() const { return p > 0 || noise > 0; }
};

Rows activation_rows(const Tensor& x_sbh, double p, const DropoutKey& key) {
  COL_CHECK(x_sbh.dim() == 3, "dropout input must be [s, b, h]; got {}", c10::str(x_sbh.sizes()));
  const Rows rows{{1, x_sbh.size(0), x_sbh.size(1)},
                  {0, 1, 0},
                  {0, 0, 1},
                  key.begin + key.sequence_offset,
                  key.hidden_offset,
                  (key.hidden_size + 3) / 4,
                  key.key,
                  p,
                  key.samples,
                  key.second_chunk_row,
                  key.begin + key.second_chunk_begin};
  COL_CHECK(p == 0 || key.hidden_offset + x_sbh.size(2) <= key.hidden_size,
            "dropout columns must lie within hidden_size; got offset {} and {} of {}", key.hidden_offset,
            x_sbh.size(2), key.hidden_size);
  return rows;
}

template <typename T, typename R>
void run_typed(const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& y,
               const Rows& rows) {
  const kernels::Dropout<T, R> args{in<T>(x),
                                    in<T>(bias),
                                    in<R>(residual),
                                    out<R>(y),
                                    rows.dims,
                                    rows.row_steps,
                                    rows.sample_steps,
                                    in<std::int64_t>(rows.samples),
                                    rows.row_offset,
                                    rows.col_offset,
                                    x.size(-1),
                                    rows.groups,
                                    rows.key,
                                    static_cast<std::uint32_t>(std::ceil(rows.p * 0x1.0p24)),
                                    1.0 / (1.0 - rows.p),
                                    rows.noise};
  launch(x, kernels::cpu::dropout<T, R>, kernels::cuda::dropout<T, R>, args);
}

/// y = residual + keep / (1 - p) * (x + bias) over contiguously numbered rows. Dtypes: x and bias T, residual
/// and y R; one of them may be fp32 beside 16 bits.
void run_chunk(const Tensor& x, const Tensor& bias, const Tensor& residual, const Tensor& y,
               const Rows& rows) {
  const bool narrows = y.scalar_type() != x.scalar_type() && x.scalar_type() == at::kFloat;
  with_stream_types(narrows ? y.scalar_type() : x.scalar_type(), narrows ? x.scalar_type() : y.scalar_type(),
                    [&]<typename T, typename S>() {
                      if (narrows)
                        run_typed<S, T>(x, bias, residual, y, rows);
                      else
                        run_typed<T, S>(x, bias, residual, y, rows);
                    });
}

void check_rows(const Tensor& x, const Rows& rows) {
  COL_CHECK(rows.p >= 0 && rows.p < 1, "dropout probability must be in [0, 1); got {}", rows.p);
  const std::int64_t batch =
      std::max({rows.dims[0] * rows.sample_steps[0], rows.dims[1] * rows.sample_steps[1],
                rows.dims[2] * rows.sample_steps[2]});
  COL_CHECK(
      !rows.is_random() || (rows.samples.defined() && rows.samples.scalar_type() == at::kLong &&
                            rows.samples.is_contiguous() && rows.samples.numel() == batch &&
                            rows.samples.device() == x.device()),
      "dropout samples must be one int64 index per sequence on the device of x; got {} for {} sequences",
      rows.samples.defined() ? rows.samples.numel() : 0, batch);
}

/// Runs the kernel, for both chunks if there are two; bias and residual may be undefined. y has `dtype`.
Tensor run(const Tensor& x, const Tensor& bias, const Tensor& residual, const Rows& rows,
           at::ScalarType dtype) {
  check_rows(x, rows);
  const Tensor y = at::empty_like(x, dtype);
  if (rows.second_chunk_row == 0 || !rows.is_random()) {
    run_chunk(x, bias, residual, y, rows);
    return y;
  }
  const std::int64_t length = rows.dims[1];
  for (const bool second : {false, true}) {
    const std::int64_t first = second ? rows.second_chunk_row : 0;
    Rows chunk = rows;
    chunk.dims[1] = second ? length - rows.second_chunk_row : rows.second_chunk_row;
    if (second) chunk.row_offset = rows.second_chunk_begin;
    const auto rows_of_chunk = [&](const Tensor& t) {
      return t.defined() ? t.narrow(0, first, chunk.dims[1]) : t;
    };
    run_chunk(rows_of_chunk(x), bias, rows_of_chunk(residual), rows_of_chunk(y), chunk);
  }
  return y;
}

struct DropoutFunction : torch::autograd::Function<DropoutFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Rows& rows) {
    save_value(ctx, rows);
    return run(x.contiguous(), Tensor(), Tensor(), rows, x.scalar_type());
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const Tensor grad_y = grads[0].contiguous();
    return {run(grad_y, Tensor(), Tensor(), saved_value<Rows>(ctx), grad_y.scalar_type()), Tensor()};
  }
};

struct BiasDropoutAddArgs {
  tensor::Parameter* bias;
  Rows rows;
  at::ScalarType dtype;  ///< of x
};

struct BiasDropoutAddFunction : torch::autograd::Function<BiasDropoutAddFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const MaybeTensor& bias,
                        const Tensor& residual, const BiasDropoutAddArgs& args) {
    save_value(ctx, args);
    return run(x.contiguous(), bias.value_or(Tensor()), residual.contiguous(), args.rows,
               residual.scalar_type());
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto args = saved_value<BiasDropoutAddArgs>(ctx);
    const Tensor grad_x = args.rows.p > 0
                              ? run(grads[0].contiguous(), Tensor(), Tensor(), args.rows, args.dtype)
                              : grads[0].to(args.dtype);
    if (args.bias != nullptr) args.bias->accumulate(column_sum(grad_x));
    return {grad_x, Tensor(), grads[0], Tensor()};
  }
};

Rows attention_rows(const Tensor& x_bnqk, double p, const DropoutKey& key, std::int64_t first_key) {
  COL_CHECK(x_bnqk.dim() == 4, "attention weights must be [b, n, q, k]; got {}", c10::str(x_bnqk.sizes()));
  COL_CHECK(first_key + x_bnqk.size(3) <= key.sequence_length &&
                key.sequence_offset + x_bnqk.size(2) <= key.sequence_length,
            "attention_dropout: positions must lie in the sequence; got {} + {} queries and {} + {} keys for "
            "length {}",
            key.sequence_offset, x_bnqk.size(2), first_key, x_bnqk.size(3), key.sequence_length);
  return {{x_bnqk.size(0), x_bnqk.size(1), x_bnqk.size(2)},
          {0, key.sequence_length, 1},
          {1, 0, 0},
          key.hidden_offset * key.sequence_length + key.begin + key.sequence_offset,
          key.begin + first_key,
          (key.sequence_length + 3) / 4,
          key.key,
          p,
          key.samples};
}

}  // namespace

Tensor dropout(const Tensor& x_sbh, double p, const DropoutKey& key) {
  if (p == 0) return x_sbh;
  return DropoutFunction::apply(x_sbh, activation_rows(x_sbh, p, key));
}

Tensor jitter(const Tensor& x_sbh, double eps, const DropoutKey& key) {
  COL_CHECK(eps >= 0 && eps <= 1, "jitter eps must be in [0, 1]; got {}", eps);
  if (eps == 0) return x_sbh;
  Rows rows = activation_rows(x_sbh, 0, key);
  rows.noise = eps;
  return DropoutFunction::apply(x_sbh, rows);
}

Tensor normal_like(const Tensor& x_sbh, const DropoutKey& key, std::uint64_t angle_key) {
  const at::NoGradGuard no_grad;
  const Tensor ones = at::ones_like(x_sbh, at::MemoryFormat::Contiguous);
  DropoutKey angle = key;
  angle.key = angle_key;
  const Tensor twice_u = jitter(ones, 1, key), twice_v = jitter(ones, 1, angle);
  return (1 - twice_u / 2).log_().mul_(-2).sqrt_().mul_((twice_v * std::numbers::pi).cos_());
}

Tensor bias_dropout_add(const Tensor& x_sbh, tensor::Parameter* bias, const Tensor& residual, double p,
                        const DropoutKey& key) {
  COL_CHECK(residual.sizes() == x_sbh.sizes() && is_stream_of(x_sbh.scalar_type(), residual.scalar_type()),
            "residual must have the shape of x and its dtype or fp32; got {} {} for x {} {}",
            c10::str(residual.sizes()), c10::toString(residual.scalar_type()), c10::str(x_sbh.sizes()),
            c10::toString(x_sbh.scalar_type()));
  COL_CHECK(bias == nullptr ||
                (bias->value.numel() == x_sbh.size(-1) && bias->value.scalar_type() == x_sbh.scalar_type()),
            "bias must have the dtype and last dimension of x; got {} for x {}",
            c10::str(value_of(bias).sizes()), c10::str(x_sbh.sizes()));
  return BiasDropoutAddFunction::apply(
      x_sbh, maybe(value_of(bias)), residual,
      BiasDropoutAddArgs{bias, activation_rows(x_sbh, p, key), x_sbh.scalar_type()});
}

Tensor attention_dropout(const Tensor& x_bnqk, double p, const DropoutKey& key) {
  if (p == 0) return x_bnqk;
  return DropoutFunction::apply(x_bnqk, attention_rows(x_bnqk, p, key, 0));
}

void drop_attention_weights(const Tensor& x_bnqk, double p, const DropoutKey& key, std::int64_t first_key) {
  if (p == 0) return;
  COL_CHECK(x_bnqk.is_contiguous(),
            "attention weights must be contiguous for in-place dropout; got strides {}",
            c10::str(x_bnqk.strides()));
  const Rows rows = attention_rows(x_bnqk, p, key, first_key);
  check_rows(x_bnqk, rows);
  run_chunk(x_bnqk, Tensor(), Tensor(), x_bnqk, rows);
}

}  // namespace colonnade::ops
