// Activation memory of one micro-batch on one virtual stage, in bytes, added up over its blocks
// (blocks/block_cost.h): tensors saved between forward and backward, and the workspace on top of them while a
// pass runs.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/cost/model_cost.h"
#include "colonnade/cost/unit_bytes.h"
#include "colonnade/layout/blocks.h"

namespace colonnade::cost {

/// Bytes that one virtual stage saves between a micro-batch's forward and backward pass: the sum over its
/// blocks, where a recomputed span of layers (layout::recompute_spans) saves only its input, r h e' with e'
/// bytes per value of the residual stream. A stage without blocks saves its input, r h e' states_in. A stage
/// that receives several states per token saves them all, and where e' is not e their converted copies; one
/// that sends them holds the last one in the copy that it sends. Outputs still being sent count separately
/// (resident_message_bytes). A test compares it with the built model.
std::int64_t stage_activations(const ModelCost& model, const layout::StageBlocks& stage);

/// Bytes that stay saved after a kBackwardInput until the weight gradients are computed: input and output
/// gradient of every linear layer, full sequences with sequence parallelism. A test compares it with the
/// built model.
std::int64_t stage_wgrad_saved(const ModelCost& model, const layout::StageBlocks& stage);

/// Peak workspace of a backward pass on top of all saved activations: gradients alive at once in the head, or
/// in a layer after the head's memory is freed, gathered sequences, and with 16-bit activations the weight
/// gradient before it is added to the main gradient; a recomputed span of layers. `delay_wgrad`: the pass
/// delays the weight gradients, and so did the later layers. `units`: by block; empty: nothing is sharded.
std::int64_t stage_workspace(const ModelCost& model, const layout::StageBlocks& stage, bool delay_wgrad,
                             const std::vector<UnitBytes>& units = {});

/// Peak workspace of the delayed weight-gradient pass on top of the saved inputs. It runs block by block, the
/// last one first, and frees a block's inputs once its gradients are computed; with 16-bit activations it
/// holds the largest gradient before that is added to the main gradient.
std::int64_t stage_wgrad_workspace(const ModelCost& model, const layout::StageBlocks& stage,
                                   const std::vector<UnitBytes>& units = {});

/// Bytes of the micro-batch itself: tokens, labels and loss mask, 20 per token, and what else its blocks
/// read. It lives from a rank's first forward pass to its last.
std::int64_t batch_bytes(const ModelCost& model);

/// Largest tensors alive at once in a forward pass that saves nothing, including the output.
std::int64_t stage_evaluation(const ModelCost& model, const layout::StageBlocks& stage,
                              const std::vector<UnitBytes>& units = {});

/// Bytes of a pipeline message of one micro-batch. `states`: StageBlocks::states_out; 1 in an evaluation.
std::int64_t message_bytes(const ModelCost& model, std::int64_t states);

}  // namespace colonnade::cost
