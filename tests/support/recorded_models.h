// Models in hf/manifest.json of the vectors, by kind.
#pragma once

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/vectors.h"

namespace colonnade::test {

enum class ModelKind { kDense, kExperts, kEncoder, kMasked };

/// Model kind described by a config.json.
inline ModelKind kind_of(const nlohmann::json& config) {
  const std::string type = config.value("model_type", "");
  if (type == "t5" || type == "mt5") return ModelKind::kEncoder;
  if (type == "bert") return ModelKind::kMasked;
  const bool experts = config.contains("num_local_experts") || config.contains("num_experts") ||
                       config.contains("n_routed_experts");
  return experts ? ModelKind::kExperts : ModelKind::kDense;
}

/// Recorded models of these kinds. Skips models of the manifest without a folder, since the manifest also
/// names families that Colonnade does not support. Without a manifest: one placeholder name, whose tests
/// fail.
inline std::vector<std::string> recorded_models(const std::vector<ModelKind>& kinds) {
  namespace fs = std::filesystem;
  const fs::path hf = fs::path(vectors()) / "hf";
  const auto json = [](const fs::path& path) { return nlohmann::json::parse(std::ifstream(path)); };
  if (!fs::exists(hf / "manifest.json")) return {"no_manifest"};
  std::vector<std::string> models;
  const nlohmann::json manifest = json(hf / "manifest.json");
  for (const auto& [name, ignored] : manifest.at("models").items())
    if (fs::exists(hf / name / "config.json") &&
        std::ranges::count(kinds, kind_of(json(hf / name / "config.json"))) > 0)
      models.push_back(name);
  return models;
}

/// Model name as part of a test name.
inline std::string test_name(std::string model) {
  std::ranges::replace_if(
      model, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return model;
}

}  // namespace colonnade::test
