// GPT-2: learned positions, LayerNorm, GELU, biases, multi-head attention.
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {

using nlohmann::json;

namespace {

json gpt2_config(const config::Model& m) {
  return {{"activation_function", m.activation == config::Activation::kGeluTanh ? "gelu_new" : "gelu"},
          {"n_embd", m.hidden_size},
          {"n_inner", m.ffn_hidden_size},
          {"n_layer", m.num_layers},
          {"n_head", m.num_attention_heads},
          {"n_positions", m.max_position_embeddings},
          {"vocab_size", m.vocab_size},
          {"layer_norm_epsilon", m.norm_epsilon},
          {"initializer_range", m.init_method_std},
          {"attn_pdrop", m.attention_dropout},
          {"embd_pdrop", m.hidden_dropout},
          {"resid_pdrop", m.hidden_dropout},
          {"tie_word_embeddings", !m.untie_embeddings_and_output_weights}};
}

void read_gpt2(const ReadContext& r) {
  auto& [type, keys, faults, s, tensors] = r;
  keys.alias("n_embd", "hidden_size");
  keys.alias("n_positions", "max_position_embeddings");
  keys.alias("n_head", "num_attention_heads");
  keys.alias("n_layer", "num_hidden_layers");
  keys.only("activation_function", {"gelu_new", "gelu", "gelu_pytorch_tanh"});
  keys.only("scale_attn_weights", {true});
  keys.only("scale_attn_by_inverse_layer_idx", {false});
  keys.only("n_special", {0});  // GPT-1: special tokens after the vocabulary
  static constexpr std::string_view kIgnored[] = {"n_ctx", "predict_special_tokens"};
  keys.ignore(kIgnored);
  const std::int64_t hidden = keys.integer("n_embd", 768);
  const std::int64_t heads = keys.integer("n_head", 12);
  if (hidden % heads != 0)
    keys.fault("n_embd", "must be a multiple of n_head", json::array({hidden, heads}), "correct the file");
  constexpr Bounds kShare{.least = 0, .most = 1};
  const double dropout = keys.real("resid_pdrop", 0.1, kShare);
  const double embedding_dropout = keys.real("embd_pdrop", 0.1, kShare);
  s = {{"num_layers", text(keys.integer("n_layer", 12, 1, kMostLayers))},
       {"hidden_size", text(hidden)},
       {"ffn_hidden_size", text(keys.integer_or_null("n_inner", std::nullopt).value_or(4 * hidden))},
       {"num_attention_heads", text(heads)},
       {"vocab_size", text(keys.integer("vocab_size", 50257))},
       {"max_position_embeddings", text(keys.integer("n_positions", 1024))},
       {"layernorm_epsilon", text(keys.real("layer_norm_epsilon", 1e-5, {.least = 0, .most = 1}))},
       {"init_method_std", text(keys.real("initializer_range", 0.02))},
       {"normalization", "LayerNorm"},
       {"activation", keys.word("activation_function", "gelu_new") == "gelu" ? "gelu" : "gelu-tanh"},
       {"position_embedding_type", "learned_absolute"},
       {"add_bias_linear", "true"},
       {"attention_dropout", text(keys.real("attn_pdrop", 0.1, kShare))},
       {"untie_embeddings_and_output_weights", text(!keys.flag("tie_word_embeddings", true))}};
  if (dropout == embedding_dropout) s["hidden_dropout"] = text(dropout);  // no setting expresses both
}

Table gpt2_table() {
  return {
      {"embedding.word_embeddings.weight", {"transformer.wte.weight"}},
      {"embedding.position_embeddings.weight", {"transformer.wpe.weight"}},
      {"decoder.layers.{}.input_layernorm.weight", {"transformer.h.{}.ln_1.weight"}},
      {"decoder.layers.{}.input_layernorm.bias", {"transformer.h.{}.ln_1.bias"}},
      {"decoder.layers.{}.self_attention.linear_qkv.weight", {"transformer.h.{}.attn.c_attn.weight"}, true},
      {"decoder.layers.{}.self_attention.linear_qkv.bias", {"transformer.h.{}.attn.c_attn.bias"}},
      {"decoder.layers.{}.self_attention.linear_proj.weight", {"transformer.h.{}.attn.c_proj.weight"}, true},
      {"decoder.layers.{}.self_attention.linear_proj.bias", {"transformer.h.{}.attn.c_proj.bias"}},
      {"decoder.layers.{}.pre_mlp_layernorm.weight", {"transformer.h.{}.ln_2.weight"}},
      {"decoder.layers.{}.pre_mlp_layernorm.bias", {"transformer.h.{}.ln_2.bias"}},
      {"decoder.layers.{}.mlp.linear_fc1.weight", {"transformer.h.{}.mlp.c_fc.weight"}, true},
      {"decoder.layers.{}.mlp.linear_fc1.bias", {"transformer.h.{}.mlp.c_fc.bias"}},
      {"decoder.layers.{}.mlp.linear_fc2.weight", {"transformer.h.{}.mlp.c_proj.weight"}, true},
      {"decoder.layers.{}.mlp.linear_fc2.bias", {"transformer.h.{}.mlp.c_proj.bias"}},
      {"decoder.final_layernorm.weight", {"transformer.ln_f.weight"}},
      {"decoder.final_layernorm.bias", {"transformer.ln_f.bias"}},
      {"output_layer.weight", {"lm_head.weight"}},
  };
}

}  // namespace

const Family& gpt2() {
  static const Family kFamily = {.types = {{"gpt2", {"GPT2LMHeadModel", "GPT2Model"}}},
                                 .has = {Feature::kLayerNorm, Feature::kBias, Feature::kLearnedPositions},
                                 .may_have = {Feature::kGelu, Feature::kGeluTanh},
                                 .also = has_square_heads,
                                 .names = gpt2_table(),
                                 .read = read_gpt2,
                                 .write = gpt2_config,
                                 .spelling = {.prefix = "transformer.",
                                              .roots = {"wte", "wpe", "h", "ln_f"},
                                              .heads = {"lm_head", "score", "multiple_choice_head",
                                                        "qa_outputs", "v_head", "classifier"}},
                                 .tied = {"transformer.wte.weight", "lm_head.weight"},
                                 .unused = {{"", ".attn.bias", kBuffers},
                                            {"", ".attn.masked_bias", kBuffers},
                                            {"multiple_choice_head.", "", kHeads}}};
  return kFamily;
}

}  // namespace colonnade::models::hf
