// Exports of a running model as Hugging Face folders (--save-hf).
#pragma once

#include "colonnade/job/job.h"
#include "colonnade/job/step_files.h"

namespace colonnade::train {

/// Writes SAVE_HF/iter_XXXXXXX when --save-hf-interval says so, or without it after the last iteration. A
/// failed export is a warning, and training continues. Collective over the world.
void export_model_if_due(job::Job& job, const job::StepFiles& files, std::int64_t last_iteration);

}  // namespace colonnade::train
