// Gradients that are partial over tensor-parallel ranks, as their placement says.
#pragma once

#include "colonnade/comm/group.h"
#include "colonnade/tensor/parameter.h"

namespace colonnade::data_parallel {

/// True when a rank's gradient is only part of the sum over `tp`: the spec lists tp as partial, or
/// some rows are held by several ranks of a cut parameter (key-value heads when tp > groups).
bool is_partial(const tensor::Parameter& parameter, const comm::Group& tp);

/// Completes main_grad over `tp`. One all-reduce of the gradient, or of the shared rows laid out
/// globally. Collective over tp; nothing for parameters that are not partial.
void sum_partial(tensor::Parameter& parameter, const comm::Group& tp);

}  // namespace colonnade::data_parallel
