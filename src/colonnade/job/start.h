// The way every verb that computes begins: place, settings, connection.
#pragma once

#include <string>
#include <vector>

#include "colonnade/comm/communicators.h"
#include "colonnade/comm/rendezvous.h"
#include "colonnade/config/run.h"
#include "colonnade/plan/rules.h"

namespace colonnade::job {

struct Started {
  config::Run run;
  comm::World world;
  comm::Communicators ranks;
};

/// Finds this process's place in the environment, completes and checks the settings (nothing is
/// started before they are sound), sets the number of threads (cores / local ranks unless
/// OMP_NUM_THREADS says it), meets the other ranks and compares settings with them. Throws
/// ConfigError with all faults, `faults` of the command line included.
Started start(config::Run run, plan::Purpose purpose, std::vector<std::string> faults = {});

}  // namespace colonnade::job
