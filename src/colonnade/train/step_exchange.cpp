// See step_exchange.h.
#include "colonnade/train/step_exchange.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace colonnade::train {

StepExchange exchange_step(const StepExchange& mine, const comm::Group& world,
                           const at::TensorOptions& options) {
  const auto on_device = options.dtype(at::kDouble);
  std::vector<double> own{mine.stop ? 1.0 : 0.0, mine.step_ms, mine.peak_memory};
  own.insert(own.end(), mine.values.begin(), mine.values.end());
  const at::Tensor row = at::tensor(own, at::kDouble).to(on_device.device());
  const auto width = static_cast<std::int64_t>(own.size());
  at::Tensor all = at::empty({width * world.size()}, on_device);
  world.all_gather(all, row, "step time, memory and stop requests").wait();
  const at::Tensor host = all.cpu();
  StepExchange result;
  for (int rank = 0; rank < world.size(); ++rank) {
    const double* numbers = host.const_data_ptr<double>() + width * rank;
    result.stop = result.stop || numbers[0] > 0;
    result.step_ms = std::max(result.step_ms, numbers[1]);
    result.values.insert(result.values.end(), numbers + 3, numbers + width);
    if (numbers[2] <= result.peak_memory) continue;
    result.peak_memory = numbers[2];
    result.peak_rank = rank;
  }
  return result;
}

}  // namespace colonnade::train
