// Executes a pipeline schedule on this rank: forward, backward and point-to-point transfers. Independent of
// the model: stages are lists of blocks, the schedule is data (schedule/program.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/base/turns.h"
#include "colonnade/comm/group.h"
#include "colonnade/schedule/program.h"
#include "colonnade/tensor/block.h"

namespace colonnade::pipeline {

using tensor::metric_sum;
using tensor::MetricSum;
using tensor::MetricSums;

/// Loss of one micro-batch.
struct Loss {
  at::Tensor value;   ///< scalar to differentiate: mean over this micro-batch
  MetricSums report;  ///< metric sums: "lm_loss" -> {sum over tokens, number of tokens}
};

/// User-replaceable training steps (NeMo's MegatronParallel: data step, forward step, loss reduction). With
/// any parallelism `batch` is called on every rank for each of its micro-batches, `forward` per stage, and
/// `loss` on the last stage only. Batch tensors may be on any device; the executor moves them to the stages'
/// device first.
struct Steps {
  std::function<tensor::Batch(int microbatch)> batch;
  std::function<Loss(const at::Tensor& output, const tensor::Batch& batch)> loss;
  /// Default if empty: stage.forward(x, pass).
  std::function<at::Tensor(tensor::Stage& stage, const at::Tensor& x, const tensor::Pass& pass)> forward;
  /// Choices of the routers for each micro-batch, to be recorded or replayed; called per stage. Empty:
  /// neither.
  std::function<std::shared_ptr<tensor::RoutingChoices>(int microbatch)> routing = nullptr;
  /// Schedule for these steps, with its own number of micro-batches; null: the executor's.
  std::shared_ptr<const schedule::Schedule> schedule = nullptr;
};

/// Input shape [s, b, h] of model chunk `chunk` of this rank for a batch. Every pipeline rank has the batch,
/// so receivers know the shape and micro-batches may have different sequence lengths.
using Activation =
    std::function<std::vector<std::int64_t>(const tensor::Batch& batch, int chunk, bool training)>;

/// Callbacks before gradients are computed, for data parallelism. Empty functions are not called.
struct GradientEvents {
  /// Before the last backward pass of a chunk. From then on Parameter::on_grad_ready means that a gradient is
  /// complete, by this pass or by its deferred weight gradients.
  std::function<void(int chunk)> before_last_backward = {};
  /// Before deferred weight gradients, and before the next weight-gradient GEMM of a parameter.
  std::function<void()> before_weights = {};
  std::function<void(tensor::Parameter& parameter)> before_product = {};
};

/// Result of one run on this rank.
struct Result {
  tensor::Report report;  ///< metrics of the loss step and of this rank's blocks
  /// Seconds of all forward and backward passes, with their collectives; 0 without Executor::time_passes.
  double forward_s = 0, backward_s = 0;
};

class Executor {
 public:
  /// `stages[c]` is model chunk c of this rank. `turns`: shared with the blocks that call hand_over(); pairs
  /// of the schedule (schedule::starts_pair) run on it, the backward pass first, and without it one after the
  /// other.
  Executor(schedule::Schedule schedule, std::vector<tensor::Stage*> stages, comm::Group pp,
           Activation activation, at::TensorOptions options, std::shared_ptr<Turns> turns = {});

  /// Sends one message over every channel (peer, activations or gradients, direction) of the schedule. NCCL
  /// connects peers with the first message, which would block a send until its receive and deadlock two ranks
  /// that send to each other. Pairs of ranks warm up one after the other, even lower ranks first. Collective
  /// over the group.
  void warm_up_p2p() const;

  /// One forward and backward pass over all micro-batches. Gradients go to Parameter::main_grad; the loss of
  /// each micro-batch is scaled by `grad_scale`. Auxiliary losses of blocks are scaled by grad_scale *
  /// block_weight.
  Result train(const Steps& steps, double grad_scale, const GradientEvents& events, double block_weight = 1);

  /// Forward only, without dropout and gradients. `sink`, if given, receives each micro-batch's output on the
  /// last stage instead of the loss step.
  Result evaluate(const Steps& steps, tensor::Output output = tensor::Output::kLoss,
                  const std::function<void(int microbatch, const at::Tensor& output)>& sink = {});

  /// Measures the passes of train() from now on; on CUDA the stream is then synchronized around each.
  void time_passes() { times_passes_ = true; }

  [[nodiscard]] const schedule::Schedule& schedule() const { return *own_->schedule; }

 private:
  /// Schedule with its message order on this rank (schedule::releases, schedule::overlapped_receives).
  struct Plan {
    std::shared_ptr<const schedule::Schedule> schedule;
    std::vector<std::vector<std::size_t>> releases, overlapped, overlapped_forward_only;
  };
  [[nodiscard]] std::shared_ptr<const Plan> plan(std::shared_ptr<const schedule::Schedule> schedule) const;
  /// Plan of the steps' schedule if it has one, else the executor's. Consecutive steps may share a schedule.
  [[nodiscard]] std::shared_ptr<const Plan> plan_of(const Steps& steps);

  /// schedule::evaluation_send_window, computed on first use because it simulates all ranks.
  [[nodiscard]] std::size_t evaluation_send_window(const Plan& plan);

  std::vector<tensor::Stage*> stages_;
  comm::Group pp_;
  Activation activation_;
  at::TensorOptions options_;
  std::shared_ptr<Turns> turns_;
  bool times_passes_ = false;
  std::vector<tensor::Parameter*> parameters_;  ///< parameters of all stages
  std::shared_ptr<const Plan> own_;
  std::shared_ptr<const Plan> latest_;  ///< plan of the latest steps with a schedule of their own
  std::optional<std::size_t> own_evaluation_send_window_, latest_evaluation_send_window_;
};

}  // namespace colonnade::pipeline
