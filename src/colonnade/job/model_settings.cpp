// See model_settings.h.
#include "colonnade/job/model_settings.h"

#include <nlohmann/json.hpp>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/models/hf/config.h"

namespace colonnade::job {
namespace {

/// Completes the settings of multi-latent attention. Step folders without rope_type are older than the
/// setting: position_embedding_type named the rotary embedding, and frequencies were scaled as in other
/// attention.
void complete_mla(const config::Run& run, TextSettings& settings, const std::string& folder) {
  const auto is = [&](const char* key, const char* value) {
    const auto found = settings.find(key);
    return found != settings.end() && found->second == value;
  };
  if (!is("multi_latent_attention", "true")) return;
  settings.erase("kv_channels");  // derived from the other sizes; --kv-channels has no effect
  const auto without_table = [](const std::string& word) {
    return word == "rope" || word == "yarn" || word == "none";
  };
  const bool yarn = is("position_embedding_type", "yarn");
  // These three words all mean no learned position embeddings, so they do not contradict each other.
  if (run.given.contains("position_embedding_type") && without_table(settings["position_embedding_type"]) &&
      without_table(config::text_of(run, config::setting("position_embedding_type"))))
    settings.erase("position_embedding_type");
  if (settings.contains("rope_type")) return;
  settings["rope_type"] = yarn ? "yarn" : "rope";
  const bool interpolated = settings.contains("rotary_seq_len_interpolation_factor") &&
                            !is("rotary_seq_len_interpolation_factor", "1");
  if (interpolated || is("use_rope_scaling", "true"))
    throw ConfigError(fmt::format(
        "{}: multi-latent attention must have plain or YaRN rotary embeddings; got weights trained with {}; use the "
        "version that wrote them",
        folder, interpolated ? "--rotary-seq-len-interpolation-factor" : "--use-rope-scaling"));
}

/// Sinkhorn routing also decides the weights of the chosen experts; auxiliary losses do not.
bool has_sinkhorn(std::string_view key, const nlohmann::json& value) {
  return key == "moe_router_load_balancing_type" && value == "sinkhorn";
}

}  // namespace

bool is_model_setting(const config::Setting& s) {
  static const std::set<std::string_view> kGroups = {
      "network size",          "positions", "layers", "mixture of experts", "multi-latent attention",
      "multi-token prediction"};
  static const std::set<std::string_view> kRunSettings = {"hidden_dropout",
                                                          "attention_dropout",
                                                          "apply_query_key_layer_scaling",
                                                          "make_vocab_size_divisible_by",
                                                          "moe_router_load_balancing_type",
                                                          "moe_aux_loss_coeff",
                                                          "moe_router_force_load_balancing",
                                                          "moe_z_loss_coeff",
                                                          "moe_router_bias_update_rate",
                                                          "moe_input_jitter_eps",
                                                          "moe_token_dispatcher_type",
                                                          "moe_shared_expert_overlap",
                                                          "moe_expert_capacity_factor",
                                                          "moe_pad_expert_input_to_capacity",
                                                          "moe_token_drop_policy",
                                                          "mtp_loss_scaling_factor"};
  return s.key == "model" || s.key == "vocab_size" ||
         (kGroups.contains(s.group) && !kRunSettings.contains(s.key));
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
  complete_mla(run, settings, source.folder().string());
  return settings;
}

}  // namespace colonnade::job
