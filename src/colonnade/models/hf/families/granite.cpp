// Granite: Llama with factors on embeddings, residual connections, attention scores and logits, with or
// without biases.
#include <cmath>

#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {
namespace {

void read_granite(const ReadContext& r) {
  constexpr Bounds kFactor{.least = 1e-9, .most = 1e9};
  auto& [type, keys, faults, s, tensors] = r;
  const Sizes sizes = read_decoder(r, {32000, 4096, 11008, 32, 32, {}, 2048, {}}, 1e4);
  require_layer_types(keys, "full_attention", sizes.layers);
  const bool biases = keys.flag("attention_bias", false);
  keys.only("mlp_bias", {biases});
  s["add_bias_linear"] = text(biases);
  const double scale = keys.real("attention_multiplier", 1, kFactor);
  s["query_pre_attn_scalar"] = text(1 / (scale * scale));
  s["embedding_factor"] = text(keys.real("embedding_multiplier", 1, kFactor));
  s["residual_factor"] = text(keys.real("residual_multiplier", 1, kFactor));
  s["logit_factor"] = text(1 / keys.real("logits_scaling", 1, kFactor));
}

nlohmann::json write_granite(const config::Model& m) {
  nlohmann::json c = decoder_config(m);
  c.update({{"attention_bias", m.add_bias_linear},
            {"mlp_bias", m.add_bias_linear},
            {"attention_multiplier", 1 / std::sqrt(*m.query_pre_attn_scalar)},
            {"embedding_multiplier", m.embedding_factor},
            {"residual_multiplier", m.residual_factor},
            {"logits_scaling", 1 / m.logit_factor}});
  c.erase("head_dim");  // the class has none
  return c;
}

}  // namespace

const Family& granite() {
  static const Family kFamily = {
      .types = {{"granite", {"GraniteForCausalLM", "GraniteModel"}}},
      .has = kLlamaLayers | Features{Feature::kScoreScale},
      .may_have =
          kRopeScalings | Features{Feature::kGroupedQueries, Feature::kBias, Feature::kEmbeddingFactor,
                                   Feature::kResidualFactor, Feature::kLogitFactor},
      .also = has_square_heads,
      .names = with_biases(joined({embedding_and_head(), pre_norms(), attention(), gated_mlp()})),
      .read = read_granite,
      .write = write_granite};
  return kFamily;
}

}  // namespace colonnade::models::hf
