// Plans of custom models: their blocks have no formulas, so their costs are recorded (block_recorder.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "colonnade/cost/model_cost.h"
#include "colonnade/job/job.h"

namespace colonnade::job {

/// Loss and data steps of a job, as it trains.
using StepsOf = std::function<pipeline::Steps(const Job& job)>;

/// A custom model with the recorded costs of its blocks; the loss step belongs to the last one.
struct RecordedModel {
  explicit RecordedModel(config::Run given) : run(std::move(given)), sequences(run) {}
  config::Run run;  ///< without recomputation: the recorded costs have the builder's
  cost::Sequences sequences;
  std::unique_ptr<cost::ModelCost> cost;
};

/// Records the model that `builder` makes for the first rank of each pipeline stage, with the first
/// micro-batch of `steps`. `run` is complete and checked; a world of any size is planned in this process,
/// without connections. Throws ConfigError for steps.forward, which replaces the blocks, and for blocks and
/// loss steps that read values of tensors.
std::unique_ptr<RecordedModel> record_model(const config::Run& run, const ModelBuilder& builder,
                                            const StepsOf& steps);

/// The plan of a custom model: cost::describe, and with `hardware` (a name or YAML file) whether it fits and
/// its step time. Completes and checks `run`, whose world size is set. Throws ConfigError with all faults.
std::string plan_text(config::Run run, const ModelBuilder& builder, const StepsOf& steps,
                      const std::string& hardware = "");

}  // namespace colonnade::job
