// Hunyuan (dense): Llama with QK norms after the rotary embedding.
#include <cmath>

#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {

using nlohmann::json;

namespace {

/// With `alpha`, scaling of type dynamic only stretches the base: to theta alpha^(d / (d - 2)) for heads of
/// size d. Returns alpha and removes the block.
std::optional<double> take_alpha(const ReadContext& r) {
  std::optional<double> alpha;
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    json block = r.keys.object(name);
    if (!block.contains("alpha")) continue;
    Keys inner(block, std::string(name) + ".", r.faults);
    inner.alias("rope_type", "type");
    inner.only("rope_type", {"dynamic"});
    alpha = inner.real("alpha", 1, {.least = 1e-9, .most = 1e9});
    json rest = {{"rope_type", "default"}};
    if (block.contains("rope_theta")) rest["rope_theta"] = block["rope_theta"];
    r.keys.replace(name, rest);
  }
  return alpha;
}

void read_hunyuan(const ReadContext& r) {
  const auto alpha = take_alpha(r);
  const Sizes sizes = read_decoder(r, {290943, 4096, 11008, 32, 32, {}, 2048, {}, 1e-5}, 1e4);
  require_layer_types(r.keys, "full_attention", sizes.layers);
  for (const char* key : {"use_qk_norm", "qk_norm"}) r.keys.only(key, {true});
  static constexpr std::string_view kIgnored[] = {
      "eod_token_id", "im_start_id",  "im_end_id", "im_newline_id",  "sep_token_id", "text_start_id",
      "text_end_id",  "mask_init_id", "norm_type", "org_vocab_size", "pad_id"};
  r.keys.ignore(kIgnored);
  r.settings["qk_layernorm"] = "true";
  r.settings["qk_norm_after_rope"] = "true";
  if (!alpha) return;
  const double size = std::stod(r.settings["kv_channels"]);
  r.settings["rotary_base"] =
      text(std::stod(r.settings["rotary_base"]) * std::pow(*alpha, size / (size - 2)));
}

json write_hunyuan(const config::Model& m) {
  json c = decoder_config(m);
  c["attention_bias"] = false;
  return c;
}

Table late_qk_norms() {
  return {{"decoder.layers.{}.self_attention.q_layernorm.weight",
           {"model.layers.{}.self_attn.query_layernorm.weight"}},
          {"decoder.layers.{}.self_attention.k_layernorm.weight",
           {"model.layers.{}.self_attn.key_layernorm.weight"}}};
}

}  // namespace

const Family& hunyuan_v1_dense() {
  static const Family kFamily = {
      .types = {{"hunyuan_v1_dense", {"HunYuanDenseV1ForCausalLM", "HunYuanDenseV1Model"}}},
      .has = kLlamaLayers | Features{Feature::kQkNorm, Feature::kNormAfterRope},
      .may_have = kRopeScalings | Features{Feature::kGroupedQueries},
      .names = joined({embedding_and_head(), pre_norms(), attention(), late_qk_norms(), gated_mlp()}),
      .read = read_hunyuan,
      .write = write_hunyuan};
  return kFamily;
}

}  // namespace colonnade::models::hf
