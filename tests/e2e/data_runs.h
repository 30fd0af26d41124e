// Small runs on given data, and their samples in `data inspect` and `data audit`.
#pragma once

#include <nlohmann/json.hpp>

#include "program.h"

namespace colonnade::e2e {

/// Command of a one-layer GPT that trains 2 steps of 2 samples of 32 tokens, saved in the folder `name`.
Words small(const TempFolder& folder, const std::string& name, const Words& more);
/// The losses of all its steps, one per line.
std::string losses(const TempFolder& folder, const std::string& name);

nlohmann::json read_json(const std::filesystem::path& path);

/// JSON result of `data inspect WORDS`; null, and a test failure, where it fails.
nlohmann::json inspected(const TempFolder& folder, const Words& words);
/// Samples `first` to `first + count - 1` of the run in its audit, without the fields of the session.
nlohmann::json audited_samples(const TempFolder& folder, const std::string& name, int first, int count);
/// The samples of an inspection, with dataset names in place of numbers.
nlohmann::json named_samples(const nlohmann::json& inspection);

/// Flags of an inspection with the settings of a run.
Words config_of(const TempFolder& folder, const std::string& name);
/// Flags of an inspection that shows samples in full; their number follows.
inline const Words kAll{"--show-tokens=64", "--show"};

}  // namespace colonnade::e2e
