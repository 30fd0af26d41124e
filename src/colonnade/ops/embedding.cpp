// Autograd function of the embedding; the gradient is added directly to main_grad.
#include "colonnade/ops/embedding.h"

#include "colonnade/kernels/embedding.h"
#include "colonnade/ops/autograd.h"
#include "colonnade/ops/launch.h"

namespace colonnade::ops {
namespace {

struct EmbeddingArgs {
  tensor::Parameter* table;
  std::int64_t first_row;
  std::int64_t rows;
  Tensor tokens_bs;
};

/// Adds grad_y [n, h] to main_grad, if that is narrower than the accumulation dtype as one rounded sum. On
/// CUDA entries are stably sorted by token, so that one thread block sums each token.
void scatter(const Tensor& grad_y, const EmbeddingArgs& args) {
  Tensor tokens = args.tokens_bs.t().contiguous().view(-1);  // in the order (s, b) of grad_y
  Tensor order;
  const Tensor& grad = args.table->main_grad_for_add();
  const bool is_narrow = grad.scalar_type() != acc_type(grad_y.scalar_type());
  const Tensor sum = is_narrow ? at::zeros_like(grad, acc_type(grad_y.scalar_type())) : grad;
  if (grad_y.is_cuda()) std::tie(tokens, order) = tokens.sort(/*stable=*/true, 0, false);
  with_float_type(grad_y.scalar_type(), [&]<typename T>() {
    launch(grad_y, kernels::cpu::embedding_grad<T>, kernels::cuda::embedding_grad<T>,
           kernels::EmbeddingGrad<T>{in<std::int64_t>(tokens), in<std::int64_t>(order), in<T>(grad_y),
                                     out<kernels::Acc<T>>(sum), tokens.numel(), grad_y.size(-1),
                                     args.first_row, args.rows});
  });
  if (is_narrow) grad.add_(sum);
}

struct EmbeddingFunction : torch::autograd::Function<EmbeddingFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& table, const EmbeddingArgs& args) {
    save_value(ctx, args);
    const std::int64_t b = args.tokens_bs.size(0);
    const std::int64_t s = args.tokens_bs.size(1);
    const Tensor y = at::empty({s, b, table.size(1)}, table.options());
    with_float_type(y.scalar_type(), [&]<typename T>() {
      launch(y, kernels::cpu::embedding<T>, kernels::cuda::embedding<T>,
             kernels::Embedding<T>{in<std::int64_t>(args.tokens_bs), in<T>(table), out<T>(y), s, b,
                                   table.size(1), args.first_row, args.rows});
    });
    return y;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    scatter(grads[0].contiguous(), saved_value<EmbeddingArgs>(ctx));
    return {Tensor(), Tensor()};
  }
};

}  // namespace

Tensor embedding(const Tensor& tokens_bs, tensor::Parameter& table, std::int64_t first_row,
                 std::int64_t rows) {
  COL_CHECK(tokens_bs.dim() == 2 && tokens_bs.scalar_type() == at::kLong,
            "embedding tokens must be int64 [b, s]; got {} {}", c10::toString(tokens_bs.scalar_type()),
            c10::str(tokens_bs.sizes()));
  COL_CHECK(tokens_bs.device() == table.value.device(),
            "embedding tokens must be on {}, the device of the table; got {}; move them",
            table.value.device().str(), tokens_bs.device().str());
  COL_CHECK(table.value.dim() == 2 && rows <= table.value.size(0),
            "embedding table must have at least {} rows; got {}", rows, c10::str(table.value.sizes()));
  return EmbeddingFunction::apply(table.value,
                                  EmbeddingArgs{&table, first_row, rows, tokens_bs.contiguous()});
}

}  // namespace colonnade::ops
