// See tied_embeddings.h.
#include "colonnade/data_parallel/tied_embeddings.h"

namespace colonnade::data_parallel {

void all_reduce_over_stages(const std::map<layout::HeldBy, comm::Group>& stages,
                            const std::vector<TiedGradient>& gradients) {
  for (const auto& [held_by, group] : stages)
    for (const TiedGradient& gradient : gradients)
      if (gradient.held_by == held_by) group.all_reduce(gradient.values, gradient.name + " / stages").wait();
}

}  // namespace colonnade::data_parallel
