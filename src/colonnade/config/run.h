// All settings of one run. Created by config::parse (command line and YAML), validated by rules::check.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/config/parallel.h"
#include "colonnade/config/recompute.h"
#include "colonnade/config/training.h"

namespace colonnade::config {

struct Run {
  std::string model_type = "gpt";  ///< `pretrain gpt`, YAML key `model`
  Model model;
  Parallel parallel;
  Recompute recompute;
  Training training;
  Optimizer optimizer;
  Schedule schedule;
  Data data;
  Checkpoint checkpoint;
  Logging logging;
  Profiling profiling;

  /// Source of each given setting by key: "the command line", "run.yaml:3". A checkpoint or a Hugging Face
  /// config.json fills the others (config::fill).
  std::map<std::string, std::string> given;
  /// Keys with invalid words: already reported, their fields have the default, and more errors about them
  /// are suppressed.
  std::set<std::string> invalid_keys;
  /// Keys of given no-op flags; config::derive() turns them into notes.
  std::vector<std::string> no_op_flags;
  /// Notes about flags without effect, one line each. Rank 0 prints them once.
  std::vector<std::string> notes;

  /// Whether training measures the largest attention score of every head.
  [[nodiscard]] bool tracks_attention_logits() const {
    return optimizer.qk_clip || logging.log_max_attention_logit;
  }

  /// Compares settings, not their sources.
  friend bool operator==(const Run& a, const Run& b) {
    return a.model_type == b.model_type && a.model == b.model && a.parallel == b.parallel &&
           a.recompute == b.recompute && a.training == b.training && a.optimizer == b.optimizer &&
           a.schedule == b.schedule && a.data == b.data && a.checkpoint == b.checkpoint &&
           a.logging == b.logging && a.profiling == b.profiling;
  }
};

}  // namespace colonnade::config
