// See recompute.h.
#include "colonnade/layout/recompute.h"

#include <algorithm>
#include <numeric>

namespace colonnade::layout {

std::vector<std::int64_t> recompute_spans(const config::Recompute& recompute, std::int64_t layers) {
  std::vector<std::int64_t> lengths;
  if (!recompute.is_full() || layers < 1) return lengths;
  const std::int64_t number = recompute.num_layers.value_or(1);
  if (recompute.method == "block") return std::vector<std::int64_t>(std::min(number, layers), 1);
  for (; layers > 0; layers -= number) lengths.push_back(std::min(number, layers));
  return lengths;
}

std::int64_t recomputed_layers(const config::Recompute& recompute, std::int64_t layers) {
  const std::vector<std::int64_t> spans = recompute_spans(recompute, layers);
  return std::accumulate(spans.begin(), spans.end(), std::int64_t{0});
}

bool recomputes_mtp_layers(const config::Recompute& recompute) {
  return recompute.is_full() && recompute.method == "uniform";
}

bool graph_keeps_batch(const config::Run& run) {
  return run.recompute.is_full() || std::ranges::any_of(config::kBatchModules, [&](const char* module) {
           return run.recompute.recomputes(module);
         });
}

}  // namespace colonnade::layout
