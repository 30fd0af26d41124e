// See export_model.h.
#include "colonnade/train/export_model.h"

#include "colonnade/base/log.h"
#include "colonnade/checkpoint/folders.h"
#include "colonnade/job/checkpoint.h"

namespace colonnade::train {

void export_model_if_due(job::Job& job, const job::StepFiles& files, std::int64_t last_iteration) {
  const config::Checkpoint& c = job.run.checkpoint;
  const std::int64_t iteration = job.counters.iteration;
  if (c.save_hf.empty() || iteration == 0) return;
  const bool due = c.save_hf_interval ? iteration % *c.save_hf_interval == 0 : iteration >= last_iteration;
  if (!due) return;
  const auto folder = std::filesystem::path(c.save_hf) / checkpoint::iteration_folder_name(iteration);
  const auto result = job::export_hugging_face(job, folder, files);
  if (job.ranks.rank() != 0) return;
  if (result.ok)
    log::info("exported {} ({:.1f} MB in {:.2f} s)", folder.string(), static_cast<double>(result.bytes) / 1e6,
              result.seconds);
  else
    log::warning("--save-hf: exporting the model of iteration {} failed: {}; training continues", iteration,
                 result.problem);
}

}  // namespace colonnade::train
