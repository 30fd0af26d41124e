// All settings of one run. Made by config::parse (command line and YAML), checked by plan::check.
#pragma once

#include "colonnade/config/model.h"
#include "colonnade/config/parallel.h"
#include "colonnade/config/training.h"

namespace colonnade::config {

struct Run {
  std::string family = "gpt";  ///< `pretrain gpt`, YAML key `model`
  Model model;
  Parallel parallel;
  Training training;
  Optimizer optimizer;
  Schedule schedule;
  Data data;
  Checkpoint checkpoint;
  Logging logging;
};

}  // namespace colonnade::config
