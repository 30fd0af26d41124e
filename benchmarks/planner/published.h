// Published training speeds of dense models in bf16, as settings and seconds per step.
#pragma once

#include <string>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/cost/hardware.h"
#include "colonnade/cost/step_time.h"

namespace colonnade::planner {

/// A Llama-like model in bf16: rotary positions, RMSNorm, SwiGLU, no biases, untied embeddings, no dropout.
config::Model llama_like(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t groups);

/// A published run. Open settings are searched: the fastest estimate that fits the memory is used.
struct Row {
  std::string name;
  std::string hardware;  ///< "h100", or a file in this folder
  config::Run run;       ///< micro_batch_size 0: searched, with virtual stages and full recomputation
  cost::Execution execution;
  double seconds = 0;       ///< published
  bool calibrated = false;  ///< used to fit constants of the hardware files
};
std::vector<Row> published_rows();
/// MoE models: printed, but part of no goal.
std::vector<Row> published_moe_rows();

/// Two runs of one model; the gain is in tokens per second.
struct Pair {
  std::string name;
  double published;
  Row before, after;
};
std::vector<Pair> published_pairs();

struct Prediction {
  config::Run run;  ///< with searched settings
  cost::Execution execution;
  cost::StepTime time;
};
/// `folder` holds the hardware files of rows that have their own.
Prediction predict(const Row& row, const std::string& folder);

/// Spearman's rank correlation: 1 if both lists have the same order.
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace colonnade::planner
