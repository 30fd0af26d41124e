// Blocks of a run's model and their parameters.
#pragma once

#include <functional>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/layout/param.h"
#include "colonnade/layout/stages.h"

namespace colonnade::cost {

/// Cheap to make for each candidate of a search.
class ModelBlocks {
 public:
  /// The model of the settings. `run` must outlive it.
  explicit ModelBlocks(const config::Run& run) : run_(run) {}
  /// A custom model: the parameters of its blocks, by virtual stage. Its blocks count as layers, numbered in
  /// order, and it shares no parameters between stages.
  ModelBlocks(const config::Run& run,
              const std::vector<std::vector<std::vector<layout::ParamSpec>>>& parameters);
  ModelBlocks(const ModelBlocks&) = delete;
  ModelBlocks& operator=(const ModelBlocks&) = delete;

  [[nodiscard]] const config::Run& run() const { return run_; }
  [[nodiscard]] bool is_custom() const { return !custom_stages_.empty(); }
  /// All blocks in order, and those of each virtual stage.
  [[nodiscard]] std::vector<layout::BlockId> blocks() const;
  [[nodiscard]] std::vector<layout::StageBlocks> stages() const;
  /// Stages of each pipeline rank, by chunk.
  [[nodiscard]] std::vector<std::vector<layout::StageBlocks>> stages_by_rank() const;
  /// Calls f(spec) for every parameter of a block, as layout::for_each_param.
  void for_each_param(const layout::BlockId& id,
                      const std::function<void(const layout::ParamSpec&)>& f) const;
  /// layout::first_readers(); none in a custom model.
  [[nodiscard]] layout::FirstReaders first_readers(const std::vector<layout::StageBlocks>& stages) const;

 private:
  const config::Run& run_;
  std::vector<layout::StageBlocks> custom_stages_;                 ///< by virtual stage
  std::vector<std::vector<layout::ParamSpec>> custom_parameters_;  ///< by number
};

}  // namespace colonnade::cost
