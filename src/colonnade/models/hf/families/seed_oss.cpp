// Seed-OSS: Qwen2 with heads that together are wider or narrower than the hidden state.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {
namespace {

/// residual_dropout is not read: it leaves out the embeddings, so that no setting expresses it.
void read_seed_oss(const ReadContext& r) {
  auto& [type, keys, faults, s, tensors] = r;
  const Sizes sizes = read_decoder(r, {155136, 4096, 27648, 64, 80, 8, 524288, 128}, 1e4);
  require_layer_types(keys, "full_attention", sizes.layers);
  s["add_qkv_bias"] = text(keys.flag("attention_bias", true));
  keys.only("attention_out_bias", {false});
  constexpr double kDropout = 0.1;
  s["attention_dropout"] = text(keys.real("attention_dropout", kDropout, {.least = 0, .most = 1}));
  static constexpr std::string_view kIgnored[] = {"residual_dropout"};
  keys.ignore(kIgnored);
}

nlohmann::json write_seed_oss(const config::Model& m) {
  nlohmann::json c = decoder_config(m);
  c.update({{"attention_bias", true}, {"attention_out_bias", false}, {"mlp_bias", false}});
  c["residual_dropout"] = m.hidden_dropout;
  return c;
}

}  // namespace

const Family& seed_oss() {
  static const Family kFamily = {
      .types = {{"seed_oss", {"SeedOssForCausalLM", "SeedOssModel"}}},
      .has = kLlamaLayers | Features{Feature::kQkvBias},
      .may_have = kRopeScalings | Features{Feature::kGroupedQueries},
      .also = [](const config::Model& m) { return !has_square_heads(m); },
      .names = joined({embedding_and_head(), pre_norms(), attention(), qkv_biases(), gated_mlp()}),
      .read = read_seed_oss,
      .write = write_seed_oss};
  return kFamily;
}

}  // namespace colonnade::models::hf
