// All-reduce of gradient rows that several tensor-parallel ranks hold.
#pragma once

#include <string_view>
#include <vector>

#include "colonnade/comm/group.h"
#include "colonnade/tensor/parameter.h"

namespace colonnade::data_parallel {

/// Sums main_grad of rows with several holders (key-value heads when tp > groups) over their holders. The
/// `parameters` are sharded over tp. One all-reduce over all of them, of the shared rows of all ranks in
/// global order. Collective over tp.
void all_reduce_shared_rows(const std::vector<tensor::Parameter*>& parameters, const comm::Group& tp,
                            std::string_view what);

}  // namespace colonnade::data_parallel
