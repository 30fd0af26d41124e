// Which command reads which setting of a run, so that one that would do nothing is refused and not offered.
#pragma once

#include "colonnade/config/schema.h"

namespace colonnade::config {

/// What a command does with a run.
enum class Use : unsigned char {
  kTrain,           ///< `pretrain`, and `plan`, which stands for it: every setting
  kEvaluateData,    ///< `evaluate` over the data of a run
  kEvaluateTokens,  ///< `evaluate --tokens`; reads a part of what kEvaluateData reads
  kGenerate,        ///< `generate`
  kInspect,         ///< `data inspect`: what decides the samples of a run, and how many it asks for
};

/// Whether the setting changes what a command of this use does, or is checked by it. The table of groups is
/// settings/use.cpp. Throws Error for an implemented setting whose group has no row there.
bool reads(Use use, const Setting& setting);

}  // namespace colonnade::config
