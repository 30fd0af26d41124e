// Settings read by each command. Settings that a command does not read are rejected and not offered.
#pragma once

#include "colonnade/config/schema.h"

namespace colonnade::config {

/// How a command uses a run.
enum class Use : unsigned char {
  kTrain,           ///< `pretrain`, and `plan`, which simulates it: all settings
  kEvaluateData,    ///< `evaluate` on the data of a run
  kEvaluateTokens,  ///< `evaluate --tokens`; a subset of kEvaluateData
  kGenerate,        ///< `generate`
  kInspect,         ///< `data inspect`: settings that determine the samples of a run and their number
};

/// Whether a command of this use reads or validates the setting. The table of groups is settings/use.cpp.
/// Throws Error for an implemented setting whose group neither defines the model nor has a row there.
bool reads(Use use, const Setting& setting);

}  // namespace colonnade::config
