// See recompute.h.
#include "colonnade/layers/recompute.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/layout/recompute.h"
#include "colonnade/tensor/backward.h"
#include "colonnade/tensor/kept.h"
#include "colonnade/tensor/storage.h"

namespace colonnade::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Repeated = std::function<at::Tensor(const Tensors&, const tensor::Pass&)>;

/// All that the second time needs besides the inputs. The batch of a pass ends with its forward pass.
struct Repeat {
  Repeated f;
  tensor::Batch batch;
  bool training = true;
  tensor::Output output = tensor::Output::kLoss;
  double grad_scale = 0;

  [[nodiscard]] at::Tensor operator()(const Tensors& inputs) const {
    return f(
        inputs,
        {.batch = batch, .training = training, .output = output, .grad_scale = grad_scale, .again = true});
  }
};

struct RecomputeRule : torch::autograd::Function<RecomputeRule> {
  static at::Tensor forward(AutogradContext* ctx, at::TensorList inputs, const tensor::Pass& pass,
                            const Repeated& f) {
    ctx->save_for_backward(inputs.vec());
    tensor::keep(ctx, Repeat{f, pass.batch, pass.training, pass.output, pass.grad_scale});
    return f(inputs.vec(), pass);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    Tensors leaves;
    for (const at::Tensor& saved : ctx->get_saved_variables())
      leaves.push_back(saved.detach().requires_grad_());
    at::Tensor y;
    {
      const at::AutoGradMode with_graph(true);
      y = tensor::kept<Repeat>(ctx)(leaves);
    }
    ctx->saved_data.clear();
    const torch::autograd::Edge edge = torch::autograd::impl::gradient_edge(y);
    y.reset();
    // The list is LibTorch's own, made for this call; what stays in it would live through the pass.
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast)
    tensor::backward(edge, std::move(const_cast<variable_list&>(grads)[0]));
    variable_list out;
    for (at::Tensor& leaf : leaves) out.push_back(tensor::take_grad(leaf));
    out.resize(out.size() + 2);  // of the pass and of f
    return out;
  }
};

class RecomputedBlocks final : public tensor::Block {
 public:
  explicit RecomputedBlocks(Blocks blocks) : blocks_(std::move(blocks)) {}

  at::Tensor forward(const at::Tensor& x, const tensor::Pass& pass) override {
    return recompute({x}, pass, [this](const Tensors& inputs, const tensor::Pass& now) {
      at::Tensor y = inputs[0];
      for (const auto& block : blocks_) y = block->forward(y, now);
      return y;
    });
  }
  std::vector<tensor::Parameter*> parameters() override {
    std::vector<tensor::Parameter*> all;
    for (const auto& block : blocks_) {
      const auto own = block->parameters();
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }
  std::vector<tensor::Parameter*> reads() override {
    const auto own = parameters();
    std::vector<tensor::Parameter*> all;
    for (const auto& block : blocks_)
      for (tensor::Parameter* parameter : block->reads())
        if (std::ranges::count(own, parameter) + std::ranges::count(all, parameter) == 0)
          all.push_back(parameter);
    return all;
  }
  void finish_step() override {
    for (const auto& block : blocks_) block->finish_step();
  }

 private:
  Blocks blocks_;
};

}  // namespace

at::Tensor recompute(const Tensors& inputs, const tensor::Pass& pass, Repeated f) {
  if (!at::GradMode::is_enabled()) return f(inputs, pass);
  return RecomputeRule::apply(at::TensorList(inputs), pass, f);
}

void make_again(const Tensors& made, const at::Tensor& behind, std::function<Tensors()> again) {
  if (!at::GradMode::is_enabled() || !behind.requires_grad()) return;
  struct State {
    std::vector<c10::Storage> storages;
    std::function<Tensors()> again;
  };
  const auto state = std::make_shared<State>(State{{}, std::move(again)});
  for (const at::Tensor& one : made) {
    COL_CHECK(
        one.storage_offset() == 0 && one.storage().nbytes() == one.nbytes(),
        "recompute: what is made again must lie alone in its memory; got {} bytes of {}; make it contiguous",
        one.nbytes(), one.storage().nbytes());
    state->storages.push_back(one.storage());
  }
  behind.register_hook([state](const at::Tensor&) {
    if (!state->again) return;
    const at::NoGradGuard no_grad;
    const Tensors once_more = state->again();
    for (std::size_t i = 0; i < once_more.size(); ++i)
      tensor::restore(state->storages[i], once_more[i].storage());
    *state = {};  // the graph keeps the hook until all of it is gone
  });
  for (const c10::Storage& storage : state->storages) tensor::release(storage);
}

std::unique_ptr<tensor::Block> recomputed(Blocks blocks) {
  return std::make_unique<RecomputedBlocks>(std::move(blocks));
}

void append_with_recomputation(Blocks& all, Blocks layers, const config::Recompute& recompute) {
  auto layer = layers.begin();
  for (const std::int64_t length : layout::stretches_made_again(recompute, std::ssize(layers))) {
    const auto end = layer + length;
    all.push_back(recomputed({std::move_iterator(layer), std::move_iterator(end)}));
    layer = end;
  }
  std::move(layer, layers.end(), std::back_inserter(all));
}

}  // namespace colonnade::layers
