// GLM-4 (0414): sandwich norms, interleaved rotary embedding of half of each head, a fused gate and up
// projection, with or without QKV biases.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {
namespace {

void read_glm4(const ReadContext& r) {
  const Sizes sizes = read_decoder(r, {151552, 4096, 13696, 40, 32, 2, 131072, 128, 1.5625e-7},
                                   RopeDefaults{.theta = 1e4, .partial = 0.5});
  require_layer_types(r.keys, "full_attention", sizes.layers);
  r.settings["add_qkv_bias"] = text(r.keys.flag("attention_bias", true));
  r.settings["sandwich_norm"] = "true";
  r.settings["rotary_interleaved"] = "true";
}

nlohmann::json write_glm4(const config::Model& m) {
  nlohmann::json c = decoder_config(m);
  c.update({{"attention_bias", m.add_qkv_bias}, {"partial_rotary_factor", m.rotary_percent}});
  return c;
}

Table glm4_blocks() {
  const std::string ours = "decoder.layers.{}.", theirs = "model.layers.{}.";
  return {{ours + "input_layernorm.weight", {theirs + "input_layernorm.weight"}},
          {ours + "post_attention_layernorm.weight", {theirs + "post_self_attn_layernorm.weight"}},
          {ours + "pre_mlp_layernorm.weight", {theirs + "post_attention_layernorm.weight"}},
          {ours + "post_mlp_layernorm.weight", {theirs + "post_mlp_layernorm.weight"}},
          {ours + "mlp.linear_fc1.weight", {theirs + "mlp.gate_up_proj.weight"}},
          {ours + "mlp.linear_fc2.weight", {theirs + "mlp.down_proj.weight"}}};
}

}  // namespace

const Family& glm4() {
  static const Family kFamily = {
      .types = {{"glm4", {"Glm4ForCausalLM", "Glm4Model"}}},
      .has = kLlamaLayers | Features{Feature::kSandwichNorm, Feature::kInterleavedRotary},
      .may_have =
          kRopeScalings | Features{Feature::kGroupedQueries, Feature::kQkvBias, Feature::kPartialRotary},
      .names = joined({embedding_and_head(), attention(), qkv_biases(), glm4_blocks()}),
      .read = read_glm4,
      .write = write_glm4};
  return kFamily;
}

}  // namespace colonnade::models::hf
