// Records what a block costs: runs its real code on meta tensors, as dry_run.h runs a whole step. A test
// compares the formulas of cost/blocks with it; a custom model, whose blocks have no formulas, is planned
// with it (recorded_model.h).
#pragma once

#include <functional>
#include <vector>

#include "colonnade/comm/call_log.h"
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

}  // namespace colonnade::job
