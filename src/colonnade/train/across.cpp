// See across.h.
#include "colonnade/train/across.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

namespace colonnade::train {

Across across_ranks(job::Job& job, bool asked, double step_ms, std::uint64_t peak_bytes) {
  const comm::Group world = job.ranks.world();
  const auto options = job.options().dtype(at::kDouble);
  const at::Tensor mine =
      at::tensor({asked ? 1.0 : 0.0, step_ms, static_cast<double>(peak_bytes)}, at::kDouble)
          .to(options.device());
  at::Tensor all = at::empty({3 * world.size()}, options);
  world.all_gather(all, mine, "step time, memory and stop requests").wait();
  const at::Tensor host = all.cpu();
  Across across;
  for (int rank = 0; rank < world.size(); ++rank) {
    const double* row = host.const_data_ptr<double>() + 3 * rank;
    across.stop = across.stop || row[0] > 0;
    across.step_ms = std::max(across.step_ms, row[1]);
    if (row[2] <= across.peak_memory) continue;
    across.peak_memory = row[2];
    across.peak_rank = rank;
  }
  return across;
}

}  // namespace colonnade::train
