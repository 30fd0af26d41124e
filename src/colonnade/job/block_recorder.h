// Records what a block costs: runs its real code on meta tensors, as dry_run.h runs a whole step. A test
// compares the formulas of cost/blocks with it, and the blocks of a custom model, which have no formulas, are
// planned with it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "colonnade/comm/call_log.h"
#include "colonnade/cost/hardware.h"
#include "colonnade/cost/model_cost.h"
#include "colonnade/job/job.h"
#include "colonnade/job/op_counter.h"

namespace colonnade::job {

/// What a block needs for one micro-batch on one rank. Bytes are those of the CPU path, the terms those of
/// cost::BlockCost.
struct BlockRecord {
  std::int64_t saved = 0;
  std::int64_t wgrad_saved = 0;
  std::int64_t forward_peak = 0;           ///< on top of `saved`, with the input
  std::int64_t backward_peak = 0;          ///< on top of `saved`, with the gradient of the output
  std::int64_t backward_input_peak = 0;    ///< the same in a pass that delays weight gradients
  std::int64_t weight_gradients_peak = 0;  ///< of the delayed weight gradients, on top of `wgrad_saved`
  std::int64_t evaluation = 0;             ///< with the input
  OpCounts forward, backward;
  std::vector<comm::LoggedCall> forward_calls, backward_calls;  ///< collectives and messages
  std::vector<std::int64_t> output_shape;
};

/// A forward pass of a block on the meta device.
using BlockPass = std::function<at::Tensor(const at::Tensor& x, const tensor::Pass& pass)>;

/// Runs forward and backward passes on an input of `shape` and the dtype of activations; an empty shape: the
/// block has no input. `log`: that of the job's process groups. Gradients go to the job's buffers. Nothing
/// else may use the meta device meanwhile.
BlockRecord record_block(Job& job, comm::CallLog& log, const tensor::Batch& batch, const BlockPass& pass,
                         const std::vector<std::int64_t>& shape);

/// Loss and data steps of a job, as it trains.
using StepsOf = std::function<pipeline::Steps(const Job& job)>;

/// A custom model with the recorded costs of its blocks; the loss step belongs to the last one.
struct RecordedModel {
  explicit RecordedModel(config::Run given) : run(std::move(given)), sequences(run) {}
  config::Run run;  ///< without recomputation: the recorded costs have the builder's
  cost::Sequences sequences;
  std::unique_ptr<cost::ModelCost> cost;
};

/// Records the model that `builder` makes for the first rank of each pipeline stage, with the first
/// micro-batch of `steps`. `run` is complete and checked; a world of any size is planned in this process,
/// without connections. Throws ConfigError for steps.forward, which replaces the blocks, and for blocks and
/// loss steps that read values of tensors.
std::unique_ptr<RecordedModel> record_model(const config::Run& run, const ModelBuilder& builder,
                                            const StepsOf& steps);

/// The plan of a custom model: cost::describe, and with `hardware` (a name or YAML file) whether it fits and
/// its step time. Completes and checks `run`, whose world size is set. Throws ConfigError with all faults.
std::string plan_text(config::Run run, const ModelBuilder& builder, const StepsOf& steps,
                      const std::string& hardware = "");

}  // namespace colonnade::job
