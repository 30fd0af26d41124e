// See open.h.
#include "colonnade/convert/open.h"

#include <fmt/format.h>

#include "colonnade/base/error.h"
#include "colonnade/checkpoint/folders.h"
#include "colonnade/checkpoint/hugging_face.h"
#include "colonnade/convert/hugging_face.h"
#include "colonnade/convert/megatron/reader.h"
#include "colonnade/convert/torch_distributed.h"

namespace colonnade::convert {

using checkpoint::CheckpointReader;

std::optional<CheckpointReader> find_run(const std::filesystem::path& path, std::optional<std::int64_t> step,
                                         const comm::Group& world, checkpoint::Check check,
                                         const config::Model* model) {
  const auto folder = checkpoint::strip_trailing_slash(path);
  const bool has_native = !checkpoint::step_folders(folder / "checkpoints").empty();
  const auto megatron = has_native && step ? std::nullopt : megatron::find_folder(folder, step);
  if (!megatron || has_native) {
    const auto native = checkpoint::find_checkpoint(path, step, world, check);
    if (native && (!megatron || native->step >= megatron->iteration))
      return CheckpointReader::open_native(native->folder);
  }
  return megatron ? std::optional(megatron::open(*megatron, {.model = model})) : std::nullopt;
}

CheckpointReader open_weights(const std::filesystem::path& path, std::optional<std::int64_t> step,
                              const comm::Group& world, checkpoint::Check check, const config::Model* model) {
  if (checkpoint::is_hugging_face_folder(path)) return open_hugging_face(path);
  if (auto run = find_run(path, step, world, check, model)) return *run;
  if (auto weights = open_torch_distributed(path, model)) return *weights;
  const std::string fault = checkpoint::unsupported_weights_fault(path);
  throw DataError(!fault.empty()
                      ? fault
                      : fmt::format("{} must be a run folder, a step folder, a Hugging Face folder or a "
                                    "checkpoint of Megatron; got none of them; check the path",
                                    path.string()));
}

}  // namespace colonnade::convert
