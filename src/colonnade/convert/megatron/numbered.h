// Tensor names of Megatron's checkpoints in one form: numbered layers, experts in one tensor. Private to
// convert/megatron.
#pragma once

#include <string>

#include "colonnade/convert/megatron/source.h"

namespace colonnade::convert::megatron {

/// Adds the stored tensor `key` to `tensors`:
///   decoder.layers.X [L, ...]                     decoder.layers.<l>.X
///   X.experts.experts.<e>.Y, one expert           X.experts.experts.Y [E, ...] at e
///   X.weight_w and X.weight_v, gate and up        X.weight, two halves of the rows
/// `experts`: number of experts of the model.
void add_numbered(Tensors& tensors, const std::string& key, const checkpoint::ComposedTensor& stored,
                  std::int64_t experts);

}  // namespace colonnade::convert::megatron
