// See sampler.h.
#include "colonnade/data/sampler.h"

#include "colonnade/base/error.h"
#include "colonnade/data/numpy_random.h"

namespace colonnade::data {
namespace {

void check_total(std::int64_t total, std::int64_t step) {
  if (step < 1 || total < step)
    throw ConfigError(fmt::format(
        "--dataloader-type cyclic: an epoch must hold one batch of {} samples; got {} samples; add data or lower "
        "--global-batch-size",
        step, total));
}

}  // namespace

CyclicOrder::CyclicOrder(std::int64_t total, std::int64_t step) : active_(0) {
  check_total(total, step);
  active_ = total - total % step;
}

std::vector<std::int64_t> CyclicOrder::order(std::int64_t epoch) const {
  return torch_randperm(active_, static_cast<std::uint64_t>(epoch));
}

std::vector<std::int64_t> sharded_cyclic_order(std::int64_t total, std::int64_t consumed,
                                               std::int64_t micro_batch, std::int64_t rank,
                                               std::int64_t ranks) {
  const std::int64_t step = micro_batch * ranks;
  check_total(total, step);
  const std::int64_t bucket = total / step * micro_batch;
  const std::int64_t active = total - total % step;
  std::vector<std::int64_t> order = torch_randperm(bucket, static_cast<std::uint64_t>(consumed / active));
  order.erase(order.begin(), order.begin() + consumed % active / ranks);
  for (std::int64_t& sample : order) sample += rank * bucket;
  return order;
}

}  // namespace colonnade::data
