// See vocab_loss.h. Matrices have one row per token in the order (s, b).
#include "colonnade/layers/vocab_loss.h"

#include "colonnade/layers/mappings.h"
#include "colonnade/ops/column_sum.h"
#include "colonnade/ops/linear.h"
#include "colonnade/ops/vocab_loss.h"
#include "colonnade/tensor/dtypes.h"
#include "colonnade/tensor/saved_value.h"

namespace colonnade::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Arguments of both passes besides tensors.
struct VocabLossArgs {
  OutputLayer output;
  comm::Group tp;
  bool sequence_parallel;
};

/// Softmax statistics of the full vocabulary from those of the ranks' shards.
ops::LogitStats combine(ops::LogitStats local, const comm::Group& tp) {
  if (tp.size() == 1) return local;
  const at::Tensor max = local.max.clone();
  tp.all_reduce(max, "vocabulary loss / maximum", comm::Reduce::kMax).wait();
  const at::Tensor sums = at::stack({local.sum_exp * (local.max - max).exp(), local.target});
  tp.all_reduce(sums, "vocabulary loss / sums").wait();
  return {max, sums[0], sums[1]};
}

struct VocabLossFunction : torch::autograd::Function<VocabLossFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& w,
                            const std::optional<at::Tensor>& b, const at::Tensor& labels_n,
                            const VocabLossArgs& args) {
    const at::Tensor full =
        args.sequence_parallel ? gather_sequence(x, args.tp, "vocabulary loss / activations") : x;
    const VocabRange vocab = vocab_range(*args.output.weight);
    const at::Tensor logits = ops::linear_forward(ops::as_rows(full), w, b);
    const auto stats =
        combine(ops::logit_stats(logits, labels_n, vocab.first, vocab.rows, args.output.softcap), args.tp);
    tensor::save_value(ctx, args);
    ctx->save_for_backward({x, logits, labels_n, stats.max, stats.sum_exp});
    return ((stats.sum_exp.log() + stats.max) - stats.target).masked_fill_(labels_n < 0, 0);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto args = tensor::saved_value<VocabLossArgs>(ctx);
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    at::Tensor dlogits = saved[1];
    const at::Tensor& labels_n = saved[2];
    const comm::Group& tp = args.tp;
    const VocabRange vocab = vocab_range(*args.output.weight);
    const at::Tensor grad_n = grads[0].contiguous().masked_fill(labels_n < 0, 0);
    ops::logit_gradient(dlogits, {.max = saved[3], .sum_exp = saved[4]}, labels_n, grad_n, vocab.first,
                        vocab.rows, args.output.softcap);

    at::Tensor full = x;
    comm::Work gather, reduce;
    if (args.sequence_parallel && tp.size() > 1) {
      auto shape = x.sizes().vec();
      shape[0] *= tp.size();
      full = at::empty(shape, x.options());
      gather = tp.all_gather(full, x.contiguous(), "vocabulary loss / activations");
    }
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) {
      dx = ops::linear_input_grad(dlogits, args.output.weight->value.detach()).view(full.sizes());
      if (args.sequence_parallel && tp.size() > 1) {
        const at::Tensor partial = dx;
        dx = at::empty_like(x, at::MemoryFormat::Contiguous);
        reduce = tp.reduce_scatter(dx, partial, "vocabulary loss / gradient");
      } else {
        reduce = tp.all_reduce(dx, "vocabulary loss / gradient");
      }
    }
    gather.wait();
    args.output.weight->accumulate_weight_grad(dlogits, ops::as_rows(full));
    if (args.output.bias != nullptr) args.output.bias->accumulate(ops::column_sum(dlogits));
    reduce.wait();
    return {dx, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor vocab_loss(const at::Tensor& x, const OutputLayer& output, const at::Tensor& labels,
                      const comm::Group& tp, bool sequence_parallel) {
  const at::Tensor labels_n = labels.t().contiguous().view(-1);
  const at::Tensor loss_n = VocabLossFunction::apply(x, output.weight->value, output.bias_value(), labels_n,
                                                     VocabLossArgs{output, tp, sequence_parallel});
  return loss_n.view({labels.size(1), labels.size(0)}).t();
}

at::Tensor vocab_logits(const at::Tensor& x, const OutputLayer& output, const comm::Group& tp,
                        bool sequence_parallel) {
  const at::NoGradGuard no_grad;
  const at::Tensor full = sequence_parallel ? gather_sequence(x, tp, "logits / activations") : x;
  const at::Tensor local =
      ops::linear_forward(ops::as_rows(full), output.weight->value.detach(), output.bias_value());
  at::Tensor vocab_major = local.t().to(tensor::acc_type(local.scalar_type())).contiguous();
  if (const double cap = output.softcap; cap > 0) vocab_major.div_(cap).tanh_().mul_(cap);
  if (tp.size() > 1) {
    at::Tensor all = at::empty({vocab_major.size(0) * tp.size(), vocab_major.size(1)}, vocab_major.options());
    tp.all_gather(all, vocab_major, "logits / vocabulary").wait();
    vocab_major = all;
  }
  const std::int64_t vocabulary = output.weight->spec.shape[0];
  return vocab_major.narrow(0, 0, vocabulary)
      .view({vocabulary, full.size(0), full.size(1)})
      .permute({2, 1, 0})
      .contiguous();
}

}  // namespace colonnade::layers
