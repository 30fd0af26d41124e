// All settings of one run. Made by config::parse (command line and YAML), checked by rules::check.
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
  std::string family = "gpt";  ///< `pretrain gpt`, YAML key `model`
  Model model;
  Parallel parallel;
  Recompute recompute;
  Training training;
  Optimizer optimizer;
  Schedule schedule;
  Data data;
  Checkpoint checkpoint;
  Logging logging;

  /// Where each setting that was given came from, by key: "the command line", "run.yaml:3". A
  /// checkpoint or a Hugging Face config.json fills the others (config::fill).
  std::map<std::string, std::string> given;
  /// Keys whose given words could not be read: a fault says so, the field has its default, and nothing more
  /// should be said about it.
  std::set<std::string> at_fault;
  /// Keys of flags that were given and ask for what is always so here; config::derive() makes notes of them.
  std::vector<std::string> always;
  /// Flags that ask for what is always so here, or do nothing, one line each. Rank 0 prints them once.
  std::vector<std::string> notes;

  /// The same settings, wherever they came from.
  friend bool operator==(const Run& a, const Run& b) {
    return a.family == b.family && a.model == b.model && a.parallel == b.parallel &&
           a.recompute == b.recompute && a.training == b.training && a.optimizer == b.optimizer &&
           a.schedule == b.schedule && a.data == b.data && a.checkpoint == b.checkpoint &&
           a.logging == b.logging;
  }
};

}  // namespace colonnade::config
