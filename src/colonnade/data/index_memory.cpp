// See index_memory.h.
#include "colonnade/data/index_memory.h"

#include "colonnade/base/error.h"
#include "colonnade/base/machine_memory.h"

namespace colonnade::data {

void require_index_memory(const std::string& dataset, std::string_view requested, double bytes) {
  const auto available = static_cast<double>(machine_memory());
  if (available == 0 || bytes <= available) return;
  throw ConfigError(fmt::format(
      "{}: the indices of its samples must fit the memory of this machine, {:.1f} GB; got {}, which need {:.1f} "
      "GB; request fewer (--train-iters, --train-samples, --eval-iters; --samples of `data inspect`)",
      dataset, available * 1e-9, requested, bytes * 1e-9));
}

}  // namespace colonnade::data
