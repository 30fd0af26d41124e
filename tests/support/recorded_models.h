// Models in the manifests of hf and hf_more of the vectors, by kind.
#pragma once

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
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
                       config.contains("n_routed_experts") || config.contains("moe_num_experts");
  return experts ? ModelKind::kExperts : ModelKind::kDense;
}

/// Folder of a model below vectors(): "hf/llama", and "hf_more/phi3" of "hf_more/phi3".
inline std::string recorded_folder(const std::string& model) {
  return model.find('/') == std::string::npos ? "hf/" + model : model;
}

/// manifest.json beside the folder of `model`; null without one.
inline nlohmann::json manifest_beside(const std::string& model) {
  const auto path = std::filesystem::path(vectors()) / recorded_folder(model) / ".." / "manifest.json";
  return std::filesystem::exists(path.lexically_normal())
             ? nlohmann::json::parse(std::ifstream(path.lexically_normal()))
             : nlohmann::json();
}

/// Recorded models of these kinds in the folder `set`, whose names begin with `prefix`. Skips models of the
/// manifest without a folder, since the manifest also names families that Colonnade does not support. Without
/// a manifest: one placeholder name, whose tests fail.
inline std::vector<std::string> recorded_models_in(const std::string& prefix,
                                                   const std::vector<ModelKind>& kinds) {
  namespace fs = std::filesystem;
  const nlohmann::json manifest = manifest_beside(prefix + "any");
  if (manifest.is_null()) return {"no_manifest"};
  std::vector<std::string> models;
  for (const auto& [name, ignored] : manifest.at("models").items()) {
    const fs::path config = fs::path(vectors()) / recorded_folder(prefix + name) / "config.json";
    if (fs::exists(config) &&
        std::ranges::count(kinds, kind_of(nlohmann::json::parse(std::ifstream(config)))) > 0)
      models.push_back(prefix + name);
  }
  return models;
}
inline std::vector<std::string> recorded_models(const std::vector<ModelKind>& kinds) {
  return recorded_models_in("", kinds);
}

/// Supported models of the set hf_more; another set may hold more of them.
inline constexpr const char* kFurtherModels[] = {"llama32",
                                                 "phi3",
                                                 "phi3_short",
                                                 "gemma2",
                                                 "gemma3_wrapper_text",
                                                 "olmo2",
                                                 "qwen2_moe",
                                                 "deepseek_v2",
                                                 "deepseek_v2_lite",
                                                 "glm4_moe",
                                                 "minimax_m2",
                                                 "granite",
                                                 "olmo3",
                                                 "olmoe",
                                                 "smollm3",
                                                 "seed_oss",
                                                 "glm4",
                                                 "nemotron",
                                                 "starcoder2",
                                                 "exaone4",
                                                 "cohere2",
                                                 "hunyuan_v1_dense",
                                                 "deepseek_v3_fp8",
                                                 "qwen3_fp8",
                                                 "gpt_oss_mxfp4",
                                                 "ministral3",
                                                 "t5_relu",
                                                 "ernie4_5_moe"};
inline std::vector<std::string> further_models(const std::vector<ModelKind>& kinds) {
  std::vector<std::string> models = recorded_models_in("hf_more/", kinds);
  std::erase_if(models, [](const std::string& model) {
    return std::ranges::none_of(kFurtherModels,
                                [&](const char* name) { return model == std::string("hf_more/") + name; });
  });
  return models;
}

/// Whether a model of the set is written as read: under the same names, with as many bits.
inline bool is_written_as_read(const std::string& model) {
  return !model.ends_with("_fp8") && !model.ends_with("_mxfp4") && !model.ends_with("_wrapper_text");
}

/// Allowed differences from Transformers; relative but for logits, to which 1e-4 of the value is added.
struct Tolerance {
  double logits = 2e-5, loss = 1e-5, gradient = 2e-5, gradient_dot = 1e-5;
};
inline Tolerance tolerance_of(const std::string& model) {
  const auto slash = model.find('/');
  if (slash == std::string::npos) return {};
  const nlohmann::json t = manifest_beside(model).at("models").at(model.substr(slash + 1)).at("tolerance");
  return {t.at("logits_abs"), t.at("loss_rel"), t.at("grad_norm_rel"), t.at("grad_norm_rel")};
}

/// Parameters that the loss does not depend on.
inline std::set<std::string> names_without_gradient(const std::string& model) {
  const auto slash = model.find('/');
  if (slash == std::string::npos) return {};
  return manifest_beside(model).at("models").at(model.substr(slash + 1)).at("no_gradient");
}

/// Model name as part of a test name.
inline std::string test_name(std::string model) {
  std::ranges::replace_if(
      model, [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return model;
}

}  // namespace colonnade::test
