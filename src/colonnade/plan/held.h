// What a pipeline rank holds: its parameters in forward order, and how they lie in its flat buffers.
#pragma once

#include <functional>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/plan/buckets.h"
#include "colonnade/plan/stages.h"

namespace colonnade::plan {

/// Calls use(spec, unit) for every parameter of a stage, copies included, in forward order, with the number
/// of its block in the stage; returns how many blocks there are. Layers that are made again together are one.
/// `first`: of its rank.
int for_each_held(const config::Run& run, const StageBlocks& stage, const FirstReaders& first,
                  const std::function<void(const ParamSpec& spec, int unit)>& use);

/// The flat buffers of the rank that holds `stages`.
FlatLayout flat_layout(const config::Run& run, const Mesh& mesh, const std::vector<StageBlocks>& stages);

}  // namespace colonnade::plan
