// Runs on data of a kind, and what `data inspect` and `data audit` say of their samples.
#pragma once

#include <nlohmann/json.hpp>

#include "program.h"

namespace colonnade::e2e {

/// A GPT of one layer that reads 2 steps of 2 samples of 32 tokens and saves them in the folder `name`.
Words small(const TempFolder& folder, const std::string& name, const Words& more);
/// The losses of all its steps, a line each.
std::string losses(const TempFolder& folder, const std::string& name);

nlohmann::json read_json(const std::filesystem::path& path);

/// What `data inspect WORDS` says; null, and a failure, where it ends otherwise.
nlohmann::json inspected(const TempFolder& folder, const Words& words);
/// Samples `first` to `first + count - 1` of the run as its audit tells them, without what is of the session.
nlohmann::json audited_samples(const TempFolder& folder, const std::string& name, int first, int count);
/// The samples of an inspection, which numbers data sets, with their names.
nlohmann::json named_samples(const nlohmann::json& inspection);

/// Flags of an inspection by the settings of a run.
Words config_of(const TempFolder& folder, const std::string& name);
/// Flags of an inspection that shows samples whole; their number follows.
inline const Words kAll{"--show-tokens=64", "--show"};

}  // namespace colonnade::e2e
