// See vocab_loss.h; the arithmetic is in kernels/vocab_loss.
#include "colonnade/ops/vocab_loss.h"

#include <ATen/ops/empty.h>

#include "colonnade/kernels/vocab_loss.h"
#include "colonnade/ops/launch.h"

namespace colonnade::ops {
namespace {

void check_logits(const at::Tensor& logits, const at::Tensor& targets, std::int64_t valid_rows) {
  COL_CHECK(logits.dim() == 2 && logits.is_contiguous() && targets.dim() == 1 && targets.is_contiguous() &&
                targets.scalar_type() == at::kLong && targets.size(0) == logits.size(0),
            "logits must be contiguous [n, v] and targets int64 [n]; got {} and {} {}",
            c10::str(logits.sizes()), c10::toString(targets.scalar_type()), c10::str(targets.sizes()));
  COL_CHECK(targets.device() == logits.device(),
            "targets must be on {}, the device of the logits; got {}; move them", logits.device().str(),
            targets.device().str());
  COL_CHECK(valid_rows >= 0 && valid_rows <= logits.size(1),
            "valid columns must lie within the logits; got {} of {}", valid_rows, logits.size(1));
}

}  // namespace

LogitStats logit_stats(const at::Tensor& logits_nv, const at::Tensor& targets_n, std::int64_t first_row,
                       std::int64_t valid_rows, double cap) {
  check_logits(logits_nv, targets_n, valid_rows);
  const std::int64_t rows = logits_nv.size(0);
  const auto options = logits_nv.options().dtype(acc_type(logits_nv.scalar_type()));
  const LogitStats stats{at::empty({rows}, options), at::empty({rows}, options), at::empty({rows}, options)};
  with_float_type(logits_nv.scalar_type(), [&]<typename T>() {
    using A = kernels::Acc<T>;
    launch(logits_nv, kernels::cpu::logit_stats<T>, kernels::cuda::logit_stats<T>,
           kernels::LogitStats<T>{in<T>(logits_nv), in<std::int64_t>(targets_n), out<A>(stats.max),
                                  out<A>(stats.sum_exp), out<A>(stats.target), rows, logits_nv.size(1),
                                  valid_rows, first_row, static_cast<A>(cap)});
  });
  return stats;
}

void logit_gradient(at::Tensor& logits_nv, const LogitStats& global, const at::Tensor& targets_n,
                    const at::Tensor& grad_n, std::int64_t first_row, std::int64_t valid_rows, double cap) {
  check_logits(logits_nv, targets_n, valid_rows);
  const at::ScalarType type = acc_type(logits_nv.scalar_type());
  for (const at::Tensor& x : {global.max, global.sum_exp, grad_n})
    COL_CHECK(x.scalar_type() == type && x.is_contiguous() && x.numel() == logits_nv.size(0),
              "logit statistics must be contiguous {} [n]; got {} {}", c10::toString(type),
              c10::toString(x.scalar_type()), c10::str(x.sizes()));
  with_float_type(logits_nv.scalar_type(), [&]<typename T>() {
    using A = kernels::Acc<T>;
    launch(logits_nv, kernels::cpu::logit_gradient<T>, kernels::cuda::logit_gradient<T>,
           kernels::LogitGradient<T>{out<T>(logits_nv), in<std::int64_t>(targets_n), in<A>(global.max),
                                     in<A>(global.sum_exp), in<A>(grad_n), logits_nv.size(0),
                                     logits_nv.size(1), valid_rows, first_row, static_cast<A>(cap)});
  });
}

}  // namespace colonnade::ops
