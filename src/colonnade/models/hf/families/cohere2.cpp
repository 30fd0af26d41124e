// Cohere 2 (Command R7B, Command A): attention and MLP in parallel from one LayerNorm without bias,
// interleaved rotary embedding in layers with a sliding window and none in the others, a factor on the
// logits.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {

using nlohmann::json;

namespace {

void read_cohere2(const ReadContext& r) {
  auto& [type, keys, faults, s, tensors] = r;
  keys.alias("rms_norm_eps", "layer_norm_eps");
  const Sizes sizes = read_decoder(r, {256000, 8192, 22528, 40, 64, {}, 8192, {}, 1e-5, true}, 1e4);
  for (const char* key :
       {"use_gated_activation", "use_parallel_block", "use_parallel_embedding", "use_embedding_sharing"})
    keys.only(key, {true, false});
  keys.only("position_embedding_type", {"rope_gptj"});
  static constexpr std::string_view kIgnored[] = {"cache_implementation", "order_of_interleaved_layers"};
  keys.ignore(kIgnored);
  const std::int64_t pattern = keys.integer("sliding_window_pattern", 4);
  if (keys.any("layer_types").is_null()) keys.only("_sliding_window_pattern", {pattern});
  static constexpr std::string_view kPattern[] = {"_sliding_window_pattern"};
  keys.ignore(kPattern);
  s["normalization"] = "LayerNorm";
  s["layernorm_bias"] = "false";
  s["parallel_residual"] = "true";
  s["rotary_interleaved"] = "true";
  s["logit_factor"] = text(keys.real("logit_scale", 0.0625, {.least = 1e-9}));
  if (read_windows(keys, pattern, 4096, sizes.layers, s)) read_layers_without_rope(sizes.layers, s);
}

json write_cohere2(const config::Model& m) {
  json c = decoder_config(m);
  c.erase("rms_norm_eps");
  c.update({{"layer_norm_eps", m.norm_epsilon},
            {"attention_bias", false},
            {"logit_scale", m.logit_factor},
            {"sliding_window", required_window(m, 4096)},
            {"layer_types", layer_types(m)}});
  return c;
}

bool is_cohere2(const config::Model& m) { return has_square_heads(m) && rotates_windowed_layers(m); }

Table one_norm() {
  return {{"decoder.layers.{}.input_layernorm.weight", {"model.layers.{}.input_layernorm.weight"}}};
}

}  // namespace

const Family& cohere2() {
  static const Family kFamily = {
      .types = {{"cohere2", {"Cohere2ForCausalLM", "Cohere2Model"}}},
      .has = {Feature::kLayerNorm, Feature::kNoNormBias, Feature::kSwiglu, Feature::kRotary,
              Feature::kParallelResidual, Feature::kInterleavedRotary, Feature::kWindow},
      .may_have = kRopeScalings | Features{Feature::kGroupedQueries, Feature::kSomeWindows,
                                           Feature::kLayersWithoutRope, Feature::kLogitFactor},
      .also = is_cohere2,
      .names = joined({embedding_and_head(), one_norm(), attention(), gated_mlp()}),
      .read = read_cohere2,
      .write = write_cohere2};
  return kFamily;
}

}  // namespace colonnade::models::hf
