// See model_settings.h.
#include "colonnade/job/model_settings.h"

#include <nlohmann/json.hpp>
#include <set>

#include "colonnade/config/attention.h"
#include "colonnade/models/hf/config.h"

namespace colonnade::job {
namespace {

/// Sinkhorn routing also decides the weights of the chosen experts; auxiliary losses do not.
bool has_sinkhorn(std::string_view key, const nlohmann::json& value) {
  return key == "moe_router_load_balancing_type" && value == "sinkhorn";
}

}  // namespace

bool is_model_setting(const config::Setting& s) {
  static const std::set<std::string_view> kRunSettings = {
      "apply_query_key_layer_scaling",    "make_vocab_size_divisible_by", "moe_router_load_balancing_type",
      "moe_token_dispatcher_type",        "moe_shared_expert_overlap",    "moe_expert_capacity_factor",
      "moe_pad_expert_input_to_capacity", "moe_token_drop_policy"};
  return s.key == "model" || s.key == "vocab_size" ||
         (s.defines_model && !s.training_only && !kRunSettings.contains(s.key));
}

TextSettings model_settings(const config::Run& run, const checkpoint::CheckpointReader& source) {
  TextSettings settings;
  if (source.state().is_object() && source.state().contains("settings")) {
    for (const auto& [key, value] : source.state().at("settings").items())
      if (is_model_setting(config::setting(key)) || has_sinkhorn(key, value))
        settings[key] = value.get<std::string>();
  } else {
    settings = models::hf::settings_of(source.hf_config(), (source.folder() / "config.json").string(),
                                       source.names());
  }
  config::complete_attention(run, settings, source.folder().string());
  return settings;
}

}  // namespace colonnade::job
