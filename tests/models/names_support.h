// Shared by the tests of names and config.json: models of the recorded checkpoints.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/config/derive.h"
#include "colonnade/config/parse.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/models/hf/config.h"
#include "colonnade/models/hf/names.h"
#include "support/recorded_models.h"
#include "support/vectors.h"

namespace colonnade::models::hf::test {

/// Path of a file in the folder of a model (support/recorded_models.h).
inline std::string path_of(const std::string& folder, const std::string& file) {
  return colonnade::test::vectors() + "/" + colonnade::test::recorded_folder(folder) + "/" + file;
}

inline nlohmann::json config_in(const std::string& folder, const std::string& file = "config.json") {
  return nlohmann::json::parse(read_file(path_of(folder, file)));
}

inline config::Run run_from(const nlohmann::json& config) {
  config::Run run;
  config::fill(run, settings_of(config, "test"), "test");
  config::derive(run);
  return run;
}

inline config::Run run_of(const std::string& folder) { return run_from(config_in(folder)); }

inline std::set<std::string> names_of(const config::Run& run) {
  std::set<std::string> names;
  for (const auto& spec : layout::model_params(run.model, run.parallel))
    for (const auto& tensor : tensors_of(spec, naming_of(run.model))) names.insert(tensor.name);
  return names;
}

/// The family of `folder`'s model after a change.
template <typename Change>
const Family* family_after(const std::string& folder, const Change& change) {
  config::Model model = run_of(folder).model;
  change(model);
  return family_of(model);
}

/// Error for the config.json of `folder` after a change; "" without one.
inline std::string config_error(const char* folder, const nlohmann::json& change) {
  auto config = config_in(folder);
  config.update(change);
  try {
    settings_of(config, "x/config.json");
    return "";
  } catch (const ConfigError& e) {
    return e.what();
  }
}

}  // namespace colonnade::models::hf::test
