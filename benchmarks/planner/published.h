// Published training speeds of dense models in bf16, as settings and seconds per step.
#pragma once

#include <string>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/cost/hardware.h"
#include "colonnade/cost/step_time.h"

namespace colonnade::planner {

/// Of Llama's kind in bf16: rotary positions, RMSNorm, SwiGLU, no biases, untied tables, no dropout.
config::Model llama_kind(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t groups);

/// What a row leaves open is searched: the fastest by estimate that fits the memory, whatever was published.
struct Row {
  std::string name;
  std::string hardware;  ///< "h100", or a file beside this one
  config::Run run;       ///< micro_batch_size 0: searched, with virtual stages and full recomputation
  cost::Execution execution;
  double seconds = 0;       ///< published
  bool calibrated = false;  ///< one of those that constants of the hardware files are fitted to
};
std::vector<Row> published_rows();
/// Mixtures of experts: shown beside the others, in no goal.
std::vector<Row> published_mixtures();

/// Two ways to run one model; the gain is in tokens per second.
struct Pair {
  std::string name;
  double published;
  Row before, after;
};
std::vector<Pair> published_pairs();

struct Prediction {
  config::Run run;  ///< as searched
  cost::Execution execution;
  cost::StepTime time;
};
/// `folder` holds the hardware files of the rows that have one of their own.
Prediction predict(const Row& row, const std::string& folder);

/// Spearman's: 1 when both lists have the same order.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace colonnade::planner
