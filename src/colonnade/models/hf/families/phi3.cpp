// Phi-3 and Phi-4: Llama with fused projections, LongRoPE, partial rotary embedding, sliding windows.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {
namespace {

void read_phi3(const ReadContext& r) {
  const Sizes sizes = read_decoder(r, {32064, 3072, 8192, 32, 32, {}, 4096, {}, 1e-5},
                                   RopeDefaults{.theta = 1e4, .partial = 1.0, .longrope = true});
  read_window_everywhere(r.keys, std::nullopt, sizes.layers, r.settings);
}

nlohmann::json write_phi3(const config::Model& m) {
  nlohmann::json c = decoder_config(m);
  c.update({{"sliding_window", sliding_window(m)},
            {"partial_rotary_factor", m.rotary_percent},
            {"resid_pdrop", 0.0},
            {"embd_pdrop", 0.0}});
  if (!m.uses_longrope()) return c;
  // Transformers 4 accepts these names only.
  nlohmann::json& scaling = c["rope_scaling"];
  scaling["type"] = scaling["rope_type"];
  scaling.erase("rope_type");
  c["original_max_position_embeddings"] = scaling["original_max_position_embeddings"];
  scaling.erase("original_max_position_embeddings");
  return c;
}

Table fused_projections() {
  return {
      {"decoder.layers.{}.self_attention.linear_qkv.weight", {"model.layers.{}.self_attn.qkv_proj.weight"}},
      {"decoder.layers.{}.self_attention.linear_proj.weight", {"model.layers.{}.self_attn.o_proj.weight"}},
      {"decoder.layers.{}.mlp.linear_fc1.weight", {"model.layers.{}.mlp.gate_up_proj.weight"}},
      {"decoder.layers.{}.mlp.linear_fc2.weight", {"model.layers.{}.mlp.down_proj.weight"}}};
}

}  // namespace

const Family& phi3() {
  static const Family kFamily = {
      .types = {{"phi3", {"Phi3ForCausalLM", "Phi3Model"}}},
      .has = kLlamaLayers,
      .may_have = kRopeScalings | Features{Feature::kLongRope, Feature::kPartialRotary,
                                           Feature::kGroupedQueries, Feature::kWindow},
      .also = [](const config::Model& m) { return !m.uses_yarn() && has_square_heads(m); },
      .names = joined({embedding_and_head(), pre_norms(), fused_projections()}),
      .read = read_phi3,
      .write = write_phi3};
  return kFamily;
}

}  // namespace colonnade::models::hf
