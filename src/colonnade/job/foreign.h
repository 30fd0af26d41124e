// What lies in the folders of --load and --save when it is no checkpoint of ours.
#pragma once

#include <string>

#include "colonnade/config/run.h"

namespace colonnade::job {

/// Why nothing is loaded from --load: this process may not look into it. "" where it may, and where it is
/// missing or not given.
std::string closed_load_fault(const config::Run& run);

/// Why no new run begins with --load, in which no checkpoint was found: it is a file, Megatron's or Hugging
/// Face's, a step folder that is not there, or it holds what no run leaves behind. "" where it is missing or
/// empty, and where it holds only what a run, its launcher or its job script writes before the first
/// checkpoint: the files of a run folder, what the settings of `run` put there, rank_N.log, other logs and
/// scripts.
std::string load_fault(const config::Run& run);

/// Why the run is not saved in --save: the folder is Megatron's. "" else.
std::string save_fault(const config::Run& run);

}  // namespace colonnade::job
