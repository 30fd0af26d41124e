// See column_sum.h.
#include "colonnade/ops/column_sum.h"

#include <ATen/ops/empty.h>

#include "colonnade/kernels/reduce.h"
#include "colonnade/ops/launch.h"

namespace colonnade::ops {

at::Tensor column_sum(const at::Tensor& x_in) {
  const at::Tensor x = x_in.contiguous();
  const std::int64_t cols = x.size(-1);
  const std::int64_t rows = cols > 0 ? x.numel() / cols : 0;
  const auto options = x.options().dtype(acc_type(x.scalar_type()));
  const at::Tensor sum = at::empty({cols}, options);
  if (rows == 0) return sum.is_meta() ? sum : sum.zero_();
  const at::Tensor partial = at::empty({kernels::column_blocks(rows) * cols}, options);
  with_float_type(x.scalar_type(), [&]<typename T>() {
    using A = kernels::Acc<T>;
    launch(x, kernels::cpu::column_sum<T>, kernels::cuda::column_sum<T>,
           kernels::ColumnSum<T>{in<T>(x), out<A>(sum), out<A>(partial), rows, cols});
  });
  return sum;
}

}  // namespace colonnade::ops
