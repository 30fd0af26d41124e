// See recompute.h.
#include "colonnade/layers/recompute.h"

#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/layout/recompute.h"
#include "colonnade/tensor/backward.h"
#include "colonnade/tensor/saved_value.h"
#include "colonnade/tensor/storage.h"

namespace colonnade::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using ForwardFunction = std::function<at::Tensor(const Tensors&, const tensor::Pass&)>;

/// State of a recomputed forward pass besides its inputs; holds the batch, which the pass only refers to.
struct SavedForward {
  ForwardFunction f;
  tensor::Batch batch;
  bool training = true;
  tensor::Output output = tensor::Output::kLoss;
  double grad_scale = 0;
  std::shared_ptr<tensor::RoutingChoices> routing = nullptr;

  [[nodiscard]] at::Tensor operator()(const Tensors& inputs) const {
    return f(inputs, {.batch = batch,
                      .training = training,
                      .output = output,
                      .grad_scale = grad_scale,
                      .recomputing = true,
                      .routing = routing});
  }
};

struct CheckpointFunction : torch::autograd::Function<CheckpointFunction> {
  static at::Tensor forward(AutogradContext* ctx, at::TensorList inputs, const tensor::Pass& pass,
                            const ForwardFunction& f) {
    ctx->save_for_backward(inputs.vec());
    tensor::save_value(
        ctx, SavedForward{f, pass.batch, pass.training, pass.output, pass.grad_scale, pass.routing});
    return f(inputs.vec(), pass);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    Tensors leaves;
    for (const at::Tensor& saved : ctx->get_saved_variables())
      leaves.push_back(saved.detach().requires_grad_());
    at::Tensor y;
    {
      const at::AutoGradMode with_graph(true);
      y = tensor::saved_value<SavedForward>(ctx)(leaves);
    }
    ctx->saved_data.clear();
    const torch::autograd::Edge edge = torch::autograd::impl::gradient_edge(y);
    y.reset();
    // LibTorch made this list for this call; a tensor left in it would live through the backward pass.
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast)
    tensor::backward(edge, std::move(const_cast<variable_list&>(grads)[0]));
    variable_list out;
    for (at::Tensor& leaf : leaves) out.push_back(tensor::take_grad(leaf));
    out.resize(out.size() + 2);  // for pass and f
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
  std::vector<tensor::Parameter*> shared_parameters() override {
    const auto own = parameters();
    std::vector<tensor::Parameter*> all;
    for (const auto& block : blocks_)
      for (tensor::Parameter* parameter : block->shared_parameters())
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

at::Tensor recompute(const Tensors& inputs, const tensor::Pass& pass, ForwardFunction f) {
  if (!at::GradMode::is_enabled()) return f(inputs, pass);
  return CheckpointFunction::apply(at::TensorList(inputs), pass, f);
}

void discard_and_recompute(const Tensors& outputs, const at::Tensor& consumer,
                           std::function<Tensors()> recompute_outputs) {
  if (!at::GradMode::is_enabled() || !consumer.requires_grad()) return;
  struct State {
    std::vector<c10::Storage> storages;
    std::function<Tensors()> recompute_outputs;
  };
  const auto state = std::make_shared<State>(State{{}, std::move(recompute_outputs)});
  for (const at::Tensor& one : outputs) {
    COL_CHECK(
        one.storage_offset() == 0 && one.storage().nbytes() == one.nbytes(),
        "recompute: a discarded output must be alone in its storage; got {} bytes of {}; make it contiguous",
        one.nbytes(), one.storage().nbytes());
    state->storages.push_back(one.storage());
  }
  consumer.register_hook([state](const at::Tensor&) {
    if (!state->recompute_outputs) return;
    const at::NoGradGuard no_grad;
    const Tensors repeated = state->recompute_outputs();
    for (std::size_t i = 0; i < repeated.size(); ++i)
      tensor::restore(state->storages[i], repeated[i].storage());
    *state = {};  // the graph keeps the hook until it is freed
  });
  for (const c10::Storage& storage : state->storages) tensor::release(storage);
}

std::unique_ptr<tensor::Block> recomputed_block(Blocks blocks) {
  return std::make_unique<RecomputedBlocks>(std::move(blocks));
}

void append_with_recomputation(Blocks& all, Blocks layers, const config::Recompute& recompute) {
  auto layer = layers.begin();
  for (const std::int64_t length : layout::recompute_spans(recompute, std::ssize(layers))) {
    const auto end = layer + length;
    all.push_back(recomputed_block({std::move_iterator(layer), std::move_iterator(end)}));
    layer = end;
  }
  std::move(layer, layers.end(), std::back_inserter(all));
}

}  // namespace colonnade::layers
