// Gradients of rows that several tensor-parallel ranks hold.
#pragma once

#include <string_view>
#include <vector>

#include "colonnade/comm/group.h"
#include "colonnade/tensor/parameter.h"

namespace colonnade::data_parallel {

/// Completes main_grad of rows with several holders (key-value heads when tp > groups): afterwards every
/// holder has the sum of all of them. `parameters` are cut over tp. One all-reduce for all of them, of the
/// rows of all ranks laid out globally. Collective over tp.
void sum_shared_rows(const std::vector<tensor::Parameter*>& parameters, const comm::Group& tp,
                     std::string_view what);

}  // namespace colonnade::data_parallel
