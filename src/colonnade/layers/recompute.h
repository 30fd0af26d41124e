// Activation recomputation. Recomputed results are bitwise identical: dropout is a function of positions, all
// else of the inputs. Source: Chen et al. 2016; Korthikanti et al. 2022; Megatron's
// core/tensor_parallel/random.py (CheckpointFunction, CheckpointWithoutOutput).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "colonnade/config/recompute.h"
#include "colonnade/tensor/block.h"

namespace colonnade::layers {

using Tensors = std::vector<at::Tensor>;

/// f(inputs, pass); the graph saves only the inputs and the batch. The backward pass calls f again, with
/// pass.recomputing set and without a report, and runs backward through the new graph. Parameters get their
/// gradients there, deferred weight gradients (tensor/deferred_weight_grads.h) are deferred as usual, and
/// collectives run in f's order, the same on all ranks.
///
/// Every input is differentiated; f returns one tensor that is none of them. Objects that f refers to must
/// outlive the graph. Without a graph (evaluation, or inside another recompute()) this is a plain call of f.
at::Tensor recompute(const Tensors& inputs, const tensor::Pass& pass,
                     std::function<at::Tensor(const Tensors& inputs, const tensor::Pass& pass)> f);

/// Frees the storage of `outputs`, which their readers have saved and their own autograd function has not.
/// `recompute_outputs` restores them when the gradient of `consumer`, a descendant of every reader, arrives.
/// Each output has a storage of its own. No-op without a graph.
void discard_and_recompute(const Tensors& outputs, const at::Tensor& consumer,
                           std::function<Tensors()> recompute_outputs);

using Blocks = std::vector<std::unique_ptr<tensor::Block>>;

/// One block out of several, recomputed together: only its input is saved.
std::unique_ptr<tensor::Block> recomputed_block(Blocks blocks);

/// Appends the layers of a virtual stage, each recomputed span as one block.
void append_with_recomputation(Blocks& all, Blocks layers, const config::Recompute& recompute);

}  // namespace colonnade::layers
