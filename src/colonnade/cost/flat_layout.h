// What a pipeline rank holds: its parameters in forward order, and how they lie in its flat buffers.
#pragma once

#include <functional>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/layout/buckets.h"
#include "colonnade/layout/stages.h"

namespace colonnade::cost {

/// Calls use(spec, unit) for every parameter of a stage, copies included, in forward order, with the number
/// of its block in the stage; returns how many blocks there are. Layers that are made again together are one.
/// `first`: of its rank.
int for_each_held(const config::Run& run, const layout::StageBlocks& stage, const layout::FirstReaders& first,
                  const std::function<void(const layout::ParamSpec& spec, int unit)>& use);

/// The flat buffers of the rank that holds `stages`.
layout::FlatLayout flat_layout(const config::Run& run, const layout::Mesh& mesh,
                               const std::vector<layout::StageBlocks>& stages);

}  // namespace colonnade::cost
