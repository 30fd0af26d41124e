// Nemotron (Minitron): zero-centered LayerNorm, squared ReLU, partial rotary embedding, no biases in linear
// layers.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {
namespace {

void read_nemotron(const ReadContext& r) {
  r.keys.alias("rms_norm_eps", "norm_eps");
  const Sizes sizes = read_body(r, {256000, 6144, 24576, 32, 48, {}, 4096, {}, 1e-5},
                                RopeDefaults{.theta = 1e4, .partial = 0.5});
  require_layer_types(r.keys, "full_attention", sizes.layers);
  r.keys.only("hidden_act", {"relu2"});
  r.settings["activation"] = "squared-relu";
  r.settings["normalization"] = "LayerNorm";
  r.settings["layernorm_zero_centered_gamma"] = "true";
}

nlohmann::json write_nemotron(const config::Model& m) {
  nlohmann::json c = decoder_config(m);
  c.erase("rms_norm_eps");
  c.update({{"norm_eps", m.norm_epsilon},
            {"hidden_act", "relu2"},
            {"attention_bias", false},
            {"mlp_bias", false},
            {"partial_rotary_factor", m.rotary_percent}});
  return c;
}

}  // namespace

const Family& nemotron() {
  static const Family kFamily = {
      .types = {{"nemotron", {"NemotronForCausalLM", "NemotronModel"}}},
      .has = {Feature::kLayerNorm, Feature::kZeroCenteredNorm, Feature::kSquaredRelu, Feature::kRotary},
      .may_have = kRopeScalings | Features{Feature::kGroupedQueries, Feature::kPartialRotary},
      .names = with_norm_biases(joined(
          {embedding_and_head(), pre_norms(), attention(), plain_mlp("mlp.up_proj", "mlp.down_proj")})),
      .read = read_nemotron,
      .write = write_nemotron};
  return kFamily;
}

}  // namespace colonnade::models::hf
