// See index_memory.h.
#include "colonnade/data/index_memory.h"

#include "colonnade/base/error.h"
#include "colonnade/base/machine_memory.h"

namespace colonnade::data {

void require_index_memory(const std::string& whose, std::string_view asked, double bytes) {
  const auto here = static_cast<double>(machine_memory());
  if (here == 0 || bytes <= here) return;
  throw ConfigError(fmt::format(
      "{}: the indices of its samples must fit the memory of this machine; got {}, which need {:.1f} GB, and {:.1f} GB "
      "here; ask for fewer (--train-iters, --train-samples, --eval-iters; --samples of `data inspect`)",
      whose, asked, bytes * 1e-9, here * 1e-9));
}

}  // namespace colonnade::data
