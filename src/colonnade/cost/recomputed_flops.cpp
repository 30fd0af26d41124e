// Sums the forward FLOPs of recomputed layers and modules.
#include "colonnade/cost/recomputed_flops.h"

#include "colonnade/cost/model_cost.h"
#include "colonnade/layout/recompute.h"
#include "colonnade/layout/stages.h"

namespace colonnade::cost {

TrainingFlops recomputed_flops(const ModelCost& model, std::int64_t sequences) {
  const config::Run& run = model.run();
  ForwardFlops sum;
  for (const layout::StageBlocks& stage : model.stages()) {
    const std::int64_t first_saved =
        stage.layers().first + layout::recomputed_layers(run.recompute, stage.layers().size());
    for (const layout::BlockId& id : stage.blocks) {
      const bool in_span = id.kind == layout::BlockKind::kLayer && id.index < first_saved;
      const BlockCost& block = model.block(id);
      sum += in_span ? block.flops() : block.recomputed_flops();
    }
  }
  const auto samples = static_cast<double>(sequences);
  return {.linears = samples * sum.linears, .attention = samples * sum.attention};  // norms are not counted
}

}  // namespace colonnade::cost
