// What a forward pass does not keep and the backward pass makes again. The second time gives the same bits:
// what is dropped is a function of positions, and all else of the inputs. Source: Chen et al. 2016;
// Korthikanti et al. 2022; Megatron's core/tensor_parallel/random.py (CheckpointFunction,
// CheckpointWithoutOutput).
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

#include "colonnade/config/recompute.h"
#include "colonnade/tensor/block.h"

namespace colonnade::layers {

using Tensors = std::vector<at::Tensor>;

/// f(inputs, pass), of which the graph keeps the inputs and the batch alone. The backward pass calls f again,
/// with pass.again set and nobody to report to, and then goes backward through what that kept: parameters get
/// their gradients there, products that wait (tensor/deferred.h) are left as without it, and collectives run
/// in the same order on all ranks, since f decides their order.
///
/// Every input is differentiated; f gives one tensor that is none of them. What f refers to must outlive the
/// graph. Without a graph (evaluation, or within another recompute()) it is f itself.
at::Tensor recompute(const Tensors& inputs, const tensor::Pass& pass,
                     std::function<at::Tensor(const Tensors& inputs, const tensor::Pass& pass)> f);

/// Frees the memory of `made`, outputs that their own autograd rule does not keep, now that their readers
/// have saved them; `again` makes them once more when the gradient of `behind`, which every reader of `made`
/// leads to, is there. Each of `made` lies alone in its memory. Does nothing without a graph.
void make_again(const Tensors& made, const at::Tensor& behind, std::function<Tensors()> again);

using Blocks = std::vector<std::unique_ptr<tensor::Block>>;

/// Blocks that are one block, made again as a whole: only what it reads is kept.
std::unique_ptr<tensor::Block> recomputed(Blocks blocks);

/// Appends the layers of a virtual stage, those that are made again together as one block.
void append_with_recomputation(Blocks& all, Blocks layers, const config::Recompute& recompute);

}  // namespace colonnade::layers
