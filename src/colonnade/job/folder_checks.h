// Checks of the --load and --save folders for contents that are not checkpoints of Colonnade.
#pragma once

#include <string>

#include "colonnade/config/run.h"

namespace colonnade::job {

/// Why --load cannot be read by this process; "" where it can, and where it is missing or not given.
std::string unreadable_load_fault(const config::Run& run);

/// Why no new run may start with a --load without a checkpoint: it is a file, a folder of Megatron or Hugging
/// Face, a missing step folder, or it holds unrelated files. "" where it is missing or empty, and where it
/// holds only files that a run, its launcher or its job script writes before the first checkpoint: those of a
/// run folder, folders named by the settings of `run`, rank_N.log, other logs and scripts.
std::string load_fault(const config::Run& run);

/// Why the run cannot be saved in --save: it is a folder of Megatron. "" otherwise.
std::string save_fault(const config::Run& run);

}  // namespace colonnade::job
