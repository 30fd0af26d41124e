// StarCoder2: LayerNorm, GELU and biases as in GPT-2, with a rotary embedding, grouped queries and a sliding
// window.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {
namespace {

void read_starcoder2(const ReadContext& r) {
  auto& [type, keys, faults, s, tensors] = r;
  keys.alias("rms_norm_eps", "norm_epsilon");
  const Sizes sizes = read_body(r, {49152, 3072, 12288, 30, 24, 2, 4096, {}, 1e-5, true}, {.theta = 1e4});
  read_window_everywhere(keys, std::nullopt, sizes.layers, s);
  keys.only("hidden_act", {"gelu_pytorch_tanh"});
  keys.only("use_bias", {true});
  keys.only("mlp_type", {"default"});
  keys.only("norm_type", {"layer_norm"});
  s["activation"] = "gelu-tanh";
  s["normalization"] = "LayerNorm";
  s["add_bias_linear"] = "true";
  constexpr Bounds kShare{.least = 0, .most = 1};
  const double dropout = keys.real("residual_dropout", 0, kShare);
  if (keys.real("embedding_dropout", 0, kShare) == dropout)  // no setting expresses both
    s["hidden_dropout"] = text(dropout);
}

nlohmann::json write_starcoder2(const config::Model& m) {
  nlohmann::json c = decoder_config(m);
  c.erase("rms_norm_eps");
  c.erase("head_dim");  // the class has none
  c.update({{"norm_epsilon", m.norm_epsilon},
            {"hidden_act", "gelu_pytorch_tanh"},
            {"use_bias", true},
            {"residual_dropout", m.hidden_dropout},
            {"embedding_dropout", m.hidden_dropout},
            {"sliding_window", sliding_window(m)}});
  return c;
}

}  // namespace

const Family& starcoder2() {
  static const Family kFamily = {
      .types = {{"starcoder2", {"Starcoder2ForCausalLM", "Starcoder2Model"}}},
      .has = {Feature::kLayerNorm, Feature::kGeluTanh, Feature::kBias, Feature::kRotary},
      .may_have = kRopeScalings | Features{Feature::kGroupedQueries, Feature::kWindow},
      .also = has_square_heads,
      .names = with_biases(with_norm_biases(
          joined({embedding_and_head(), pre_norms(), attention(), plain_mlp("mlp.c_fc", "mlp.c_proj")}))),
      .read = read_starcoder2,
      .write = write_starcoder2};
  return kFamily;
}

}  // namespace colonnade::models::hf
