// A Megatron checkpoint of any format in one form: whole tensors with numbered layers. Private to
// convert/megatron.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "colonnade/checkpoint/parts.h"
#include "colonnade/models/megatron/names.h"

namespace colonnade::convert::megatron {

/// Tensors by name; layers are numbered, experts one tensor [experts, out, in]. Parts are views of mapped
/// files.
using Tensors = std::map<std::string, checkpoint::ComposedTensor>;

/// Optimizer states that hold one value per element of a parameter.
inline constexpr const char* kStates[] = {"param", "exp_avg", "exp_avg_sq"};

/// Key of common.pt under which Colonnade keeps its own state, as JSON text (writer.h).
inline constexpr const char* kStateKey = "colonnade";

struct Source {
  std::filesystem::path folder;  ///< of the step
  nlohmann::json args;           ///< of the run (argparse.Namespace), as a JSON object
  nlohmann::json common;         ///< iteration, opt_param_scheduler, ...
  nlohmann::json param_groups;   ///< of the optimizer; null: none
  Tensors model;
  std::map<std::string, Tensors> optimizer;  ///< by state (kStates); empty: none
  std::string dropped;             ///< why optimizer states of the checkpoint are not used; "": they are
  std::vector<std::string> notes;  ///< what else is not used, and why
};

/// A rank's place among those that divide a tensor.
struct Share {
  std::int64_t rank = 0, size = 1;
  models::megatron::Split split = models::megatron::Split::kNone;
  int row_dim = 0;
};

/// Shape of a rank's share of a tensor. Throws DataError where it cannot be divided.
checkpoint::Sizes local_shape(const std::string& name, const checkpoint::Sizes& global, const Share& share);

/// Shape of a tensor of which a rank holds `local`.
checkpoint::Sizes global_shape(const checkpoint::Sizes& local, const Share& share);

/// Adds the box `box` of a rank's tensor of shape `local` to the tensor of all ranks; nothing from other
/// ranks than the first where each rank holds all of it.
void add_share(checkpoint::ComposedTensor& whole, const checkpoint::Sizes& local,
               const checkpoint::Part& part, const Share& share);

/// Number of an args value, `fallback` for a missing or null one.
std::int64_t integer_arg(const nlohmann::json& args, const char* name, std::int64_t fallback);
bool flag_arg(const nlohmann::json& args, const char* name, bool fallback);
double number_arg(const nlohmann::json& args, const char* name, double fallback);
std::string text_arg(const nlohmann::json& args, const char* name, const char* fallback);

}  // namespace colonnade::convert::megatron
