// See model_settings.h.
#include "colonnade/job/model_settings.h"

#include <nlohmann/json.hpp>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/models/hf/config.h"

namespace colonnade::job {
namespace {

/// Settings of multi-latent attention. A step folder without rope_type was written before the setting
/// existed: position_embedding_type named the rotary embedding, and frequencies were scaled as those of other
/// attention.
void complete_latent(const config::Run& run, TextSettings& settings, const std::string& folder) {
  const auto is = [&](const char* key, const char* value) {
    const auto found = settings.find(key);
    return found != settings.end() && found->second == value;
  };
  if (!is("multi_latent_attention", "true")) return;
  settings.erase("kv_channels");  // follows from the other sizes; --kv-channels has no effect
  const auto no_table = [](const std::string& word) {
    return word == "rope" || word == "yarn" || word == "none";
  };
  const bool yarn = is("position_embedding_type", "yarn");
  // Three words for embeddings without positions: another of them is no contradiction.
  if (run.given.contains("position_embedding_type") && no_table(settings["position_embedding_type"]) &&
      no_table(config::text_of(run, config::setting("position_embedding_type"))))
    settings.erase("position_embedding_type");
  if (settings.contains("rope_type")) return;
  settings["rope_type"] = yarn ? "yarn" : "rope";
  const bool stretched = settings.contains("rotary_seq_len_interpolation_factor") &&
                         !is("rotary_seq_len_interpolation_factor", "1");
  if (stretched || is("use_rope_scaling", "true"))
    throw ConfigError(fmt::format(
        "{}: multi-latent attention must have plain or YaRN rotary embedding; got weights trained with {}; "
        "use the version that wrote them",
        folder, stretched ? "--rotary-seq-len-interpolation-factor" : "--use-rope-scaling"));
}

/// Sinkhorn routing also decides what the weights of chosen experts are; losses that balance do not.
bool has_sinkhorn(std::string_view key, const nlohmann::json& value) {
  return key == "moe_router_load_balancing_type" && value == "sinkhorn";
}

}  // namespace

bool says_what_the_model_is(const config::Setting& s) {
  static const std::set<std::string_view> kGroups = {
      "network size",          "positions", "layers", "mixture of experts", "multi-latent attention",
      "multi-token prediction"};
  static const std::set<std::string_view> kOfTheRun = {"hidden_dropout",
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
         (kGroups.contains(s.group) && !kOfTheRun.contains(s.key));
}

TextSettings model_settings(const config::Run& run, const checkpoint::Source& source) {
  TextSettings settings;
  if (source.state().is_object() && source.state().contains("settings")) {
    for (const auto& [key, value] : source.state().at("settings").items())
      if (says_what_the_model_is(config::setting(key)) || has_sinkhorn(key, value))
        settings[key] = value.get<std::string>();
  } else {
    settings = models::hf::settings_of(source.hf_config(), (source.folder() / "config.json").string(),
                                       source.names());
  }
  complete_latent(run, settings, source.folder().string());
  return settings;
}

}  // namespace colonnade::job
