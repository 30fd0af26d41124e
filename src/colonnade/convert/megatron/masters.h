// Comparison of an optimizer's masters with the weights they were rounded to. Private to convert/megatron.
#pragma once

#include "colonnade/convert/megatron/source.h"

namespace colonnade::convert::megatron {

/// Whether every master, rounded to the dtype of its weight, equals the weight, in rows at the begin, in the
/// middle and at the end of each tensor. Masters without a weight count as different.
bool masters_equal_weights(const Tensors& weights, const Tensors& masters);

}  // namespace colonnade::convert::megatron
