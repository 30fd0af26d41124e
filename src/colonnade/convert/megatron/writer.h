// Contents of a torch_dist checkpoint that Megatron loads: tensors, extra states, common.pt and
// metadata.json. Optimizer states are fully_reshardable, which every layout reads. Sources:
// megatron/training/checkpointing.py, megatron/core/optimizer/distrib_optimizer.py.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "colonnade/checkpoint/distributed_writer.h"
#include "colonnade/checkpoint/slice.h"
#include "colonnade/config/run.h"
#include "colonnade/layout/param.h"

namespace colonnade::convert::megatron {

/// Our slices of a parameter (of the global tensor of `spec`) as slices of Megatron's tensor, in its row
/// order and stacked by layer where has_stacked_layers(); the rows of vocabularies are padded by
/// padded_vocabulary() zeros in the slice that holds the last row. `prefix` precedes the name:
/// "optimizer.state.exp_avg.".
std::vector<checkpoint::Slice> megatron_slices(const layout::ParamSpec& spec, const checkpoint::Slice& ours,
                                               const config::Model& model, const std::string& prefix = "");

/// Name in a checkpoint of Megatron of an optimizer state of ours; "" for a state that Megatron's Adam lacks.
std::string state_name(const std::string& ours);

/// Objects besides the tensors, by key: the extra state that each linear layer and norm of Transformer Engine
/// asks for.
std::vector<std::string> extra_state_keys(const config::Model& model);
/// The pickle of an extra state without FP8: an empty uint8 tensor, [tensor], with storage 0.
std::string extra_state_pickle();

/// What common.pt says of a run, apart from its settings.
struct CommonState {
  std::int64_t iteration = 0, consumed_samples = 0, optimizer_steps = 0;
  bool has_optimizer = false;
  nlohmann::json lr_schedule;  ///< lr_state(); null: none
  /// Snapshot::state, which Megatron ignores and Colonnade resumes from without loss; null: none.
  nlohmann::json state = {};
};

/// Writes common.pt. `run`: the settings, which become args; paths and names of the user do not. Throws
/// Error.
void write_common_file(const std::filesystem::path& path, const config::Run& run, const CommonState& state);

/// metadata.json, which is written last: with it the folder is a checkpoint.
inline constexpr const char* kMetadataFile =
    R"({"sharded_backend": "torch_dist", "sharded_backend_version": 1, "common_backend": "torch", "common_backend_version": 1})";

}  // namespace colonnade::convert::megatron
