// Runs a schedule over the stages of this rank: forward, backward and the transfers between ranks.
// Knows no model: stages are lists of blocks, the schedule is data (schedule/program.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/comm/group.h"
#include "colonnade/schedule/program.h"
#include "colonnade/tensor/block.h"

namespace colonnade::pipeline {

using tensor::Tallies;
using tensor::Tally;
using tensor::tally;

/// What the loss step makes of one micro-batch's output.
struct Loss {
  at::Tensor value;  ///< scalar to differentiate: the mean over this micro-batch
  Tallies report;    ///< "lm_loss" -> {sum over tokens, tokens}, ...
};

/// The three steps of training that a user may replace (NeMo's MegatronParallel: data step, forward
/// step, loss reduction). They are called under every layout: `batch` on every rank for each of its
/// micro-batches, `forward` per stage, `loss` on the last stage only. The tensors of a batch may be on any
/// device: the executor moves them to the stages' before `forward` and `loss` see them.
struct Steps {
  std::function<tensor::Batch(int microbatch)> batch;
  std::function<Loss(const at::Tensor& output, const tensor::Batch& batch)> loss;
  /// Empty: stage.forward(x, pass).
  std::function<at::Tensor(tensor::Stage& stage, const at::Tensor& x, const tensor::Pass& pass)> forward;
  /// Of these steps alone, with micro-batches of its own number; null: the executor's.
  std::shared_ptr<const schedule::Schedule> schedule = nullptr;
};

/// The shape of the activations [s, b, h] that chunk `chunk` of this rank is given for a batch. Every rank of
/// a pipeline has the batch, so a receiver knows what comes, and micro-batches may be of any lengths.
using Activation =
    std::function<std::vector<std::int64_t>(const tensor::Batch& batch, int chunk, bool training)>;

/// What a run tells of the gradients that come next (data parallelism listens). Empty functions: nobody does.
struct GradientEvents {
  /// The last backward pass of a chunk begins: from then on Parameter::on_grad_ready says that a gradient is
  /// complete, be it by this pass or by the weight gradients that it leaves.
  std::function<void(int chunk)> before_last_backward = {};
  /// Weight gradients that a backward pass left begin, and of them the next product of a parameter.
  std::function<void()> before_weights = {};
  std::function<void(tensor::Parameter& parameter)> before_product = {};
};

/// What one run gave, on this rank.
struct Result {
  tensor::Report report;  ///< of the loss step and of this rank's blocks
};

class Executor {
 public:
  /// `stages[c]` is chunk c of this rank.
  Executor(schedule::Schedule schedule, std::vector<tensor::Stage*> stages, comm::Group pp,
           Activation activation, at::TensorOptions options);

  /// One message over every lane (neighbour, activations or gradients, direction) that the schedule uses:
  /// a network that meets the peer in the first message (NCCL) would otherwise hold up a send of a schedule
  /// until its receive, and two ranks that send to each other would wait forever. Pairs of ranks one after
  /// the other, those from an even rank up first. Collective over the group.
  void open_lanes() const;

  /// One forward and backward pass over all micro-batches. Gradients go to Parameter::main_grad; the
  /// loss of each micro-batch is differentiated with weight `grad_scale`.
  /// Losses that blocks add (of experts) are differentiated with grad_scale * block_weight.
  Result train(const Steps& steps, double grad_scale, const GradientEvents& events, double block_weight = 1);

  /// Forward only, dropout off, no gradients. `sink`, where given, receives each micro-batch's
  /// output on the last stage instead of the loss step.
  Result evaluate(const Steps& steps, tensor::Output output = tensor::Output::kLoss,
                  const std::function<void(int microbatch, const at::Tensor& output)>& sink = {});

  [[nodiscard]] const schedule::Schedule& schedule() const { return *own_->schedule; }

 private:
  /// A schedule with what follows from it on this rank (schedule::releases, schedule::receives_beside).
  struct Order {
    std::shared_ptr<const schedule::Schedule> schedule;
    std::vector<std::vector<std::size_t>> releases, beside, beside_forward;
  };
  [[nodiscard]] std::shared_ptr<const Order> order(std::shared_ptr<const schedule::Schedule> schedule) const;
  /// Of these steps: theirs, or the executor's.
  [[nodiscard]] std::shared_ptr<const Order> order_of(const Steps& steps) const {
    return steps.schedule ? order(steps.schedule) : own_;
  }

  /// schedule::messages_of_evaluations, which follows all ranks' programs: asked when something is evaluated.
  [[nodiscard]] std::size_t messages_of_evaluations(const Order& now);

  std::vector<tensor::Stage*> stages_;
  comm::Group pp_;
  Activation activation_;
  at::TensorOptions options_;
  std::vector<tensor::Parameter*> parameters_;  ///< of all stages
  std::shared_ptr<const Order> own_;
  std::optional<std::size_t> own_evaluation_messages_;
};

}  // namespace colonnade::pipeline
