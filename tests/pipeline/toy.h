// Toy model with blocks split over pipeline ranks by a schedule's placement.
#pragma once

#include <memory>
#include <vector>

#include "colonnade/pipeline/executor.h"
#include "colonnade/tensor/saved_value.h"
#include "support/device.h"
#include "support/split.h"

namespace colonnade::pipeline {

using at::Tensor;
using tensor::Parameter;

inline constexpr std::int64_t kS = 3, kB = 2, kH = 5;
inline constexpr tensor::BatchKey kX = tensor::BatchKey::custom("x"),
                                  kProbe = tensor::BatchKey::custom("probe");
inline constexpr int kMiddle = 24;  // divides into 1 .. 4 ranks with 1 .. 3 chunks

inline std::unique_ptr<Parameter> matrix(const std::string& name) {
  auto made = std::make_unique<Parameter>(layout::ParamSpec{.name = name, .shape = {kH, kH}},
                                          layout::Position(), test::options(at::kDouble));
  test::randomize({made.get()});
  return made;
}

/// x w^T as in layers: the weight-gradient GEMM may be deferred.
struct Linear : torch::autograd::Function<Linear> {
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x, const Tensor& w,
                        Parameter* weight) {
    ctx->save_for_backward({x});
    tensor::save_value(ctx, weight);
    return at::linear(x, w);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    auto* weight = tensor::saved_value<Parameter*>(ctx);
    weight->accumulate_weight_grad(grads[0].reshape({-1, kH}),
                                   ctx->get_saved_variables()[0].reshape({-1, kH}));
    return {at::matmul(grads[0], weight->value.detach()), Tensor(), Tensor()};
  }
};

/// x; both passes hand over, as at an exchange between ranks.
struct HandOver : torch::autograd::Function<HandOver> {
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x, Turns* turns) {
    tensor::save_value(ctx, turns);
    turns->hand_over();
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    tensor::saved_value<Turns*>(ctx)->hand_over();
    return {grads[0], Tensor()};
  }
};

/// First: batch -> activation; middle: residual; last: loss per token. Records whether it ran in training.
/// Every second middle block computes its weight gradient as a deferrable GEMM, the others use autograd.
class Toy final : public tensor::Block {
 public:
  enum class Kind { kFirst, kMiddle, kSplitMiddle, kLast };
  Toy(Kind kind, const std::string& name) : weight(matrix(name)), kind_(kind) {}
  Tensor forward(const Tensor& x, const tensor::Pass& pass) override {
    trained = pass.training;
    if (kind_ == Kind::kFirst) return at::linear(pass.batch.at(kX), weight->value);
    if (kind_ == Kind::kMiddle) {
      const Tensor y = at::linear(x, weight->value).tanh();
      return x + (turns == nullptr ? y : HandOver::apply(y, turns));
    }
    if (kind_ == Kind::kSplitMiddle) return x + Linear::apply(x, weight->value, weight.get()).tanh();
    if (pass.output == tensor::Output::kLogits) return at::linear(x, weight->value);
    return (at::linear(x, weight->value) * pass.batch.at(kProbe)).sum(-1).square().t();
  }
  std::vector<Parameter*> parameters() override { return {weight.get()}; }
  [[nodiscard]] bool splits() const { return kind_ == Kind::kSplitMiddle; }

  std::unique_ptr<Parameter> weight;
  bool trained = false;
  Turns* turns = nullptr;  ///< of pairs: every second middle block hands over

 private:
  Kind kind_;
};

/// Stages of one rank.
inline std::vector<std::unique_ptr<tensor::Stage>> stages_of(int rank, const schedule::Schedule& schedule) {
  std::vector<std::unique_ptr<tensor::Stage>> stages;
  const int each = kMiddle / schedule.stages();
  for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
    const int v = schedule.placement.stage(rank, chunk);
    auto& stage = *stages.emplace_back(std::make_unique<tensor::Stage>());
    stage.first = v == 0;
    stage.last = v == schedule.stages() - 1;
    if (stage.first) stage.blocks.push_back(std::make_unique<Toy>(Toy::Kind::kFirst, "first"));
    for (int i = v * each; i < (v + 1) * each; ++i)
      stage.blocks.push_back(std::make_unique<Toy>(i % 2 == 0 ? Toy::Kind::kMiddle : Toy::Kind::kSplitMiddle,
                                                   fmt::format("middle {}", i)));
    if (stage.last) stage.blocks.push_back(std::make_unique<Toy>(Toy::Kind::kLast, "last"));
  }
  return stages;
}

inline tensor::Batch batch_of(int microbatch) {
  const std::int64_t s = kS + microbatch % 3;  // lengths differ between micro-batches
  return tensor::Batch({{kX, test::named_random(fmt::format("x {}", microbatch), {s, kB, kH})},
                        {kProbe, test::named_random(fmt::format("probe {}", microbatch), {s, kB, kH})}});
}

inline std::vector<std::int64_t> shape_of(const tensor::Batch& batch, int, bool) {
  return batch.at(kX).sizes().vec();
}

inline Loss mean_loss(const Tensor& output, const tensor::Batch&) {
  return {
      .value = output.mean(),
      .report = {{"loss", metric_sum(output.sum(), at::tensor(output.numel(), test::options(at::kDouble)))}}};
}

/// Stages and executor of one rank.
struct Rank {
  std::vector<std::unique_ptr<tensor::Stage>> owned;
  std::vector<tensor::Stage*> stages;
  std::shared_ptr<Turns> turns;  ///< with a schedule of pairs
  std::unique_ptr<Executor> executor;
  Rank(const schedule::Schedule& schedule, const comm::Group& pp) : owned(stages_of(pp.rank(), schedule)) {
    if (schedule.pairs_passes) turns = std::make_shared<Turns>();
    for (const auto& stage : owned) {
      stages.push_back(stage.get());
      for (const auto& block : stage->blocks) dynamic_cast<Toy&>(*block).turns = turns.get();
    }
    executor = std::make_unique<Executor>(schedule, stages, pp, shape_of, test::options(at::kDouble), turns);
  }
};

inline void on_ranks(int ranks, const std::function<void(const comm::Group&)>& body) {
  config::Parallel parallel;
  parallel.world_size = parallel.pipeline_model_parallel_size = ranks;
  comm::run_ranks(parallel, [&](comm::Communicators& all) { body(all.group({layout::Axis::kPp})); });
}

}  // namespace colonnade::pipeline
