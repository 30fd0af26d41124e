// Model settings: sizes, architecture, initialization, precision.
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

constexpr auto kModel = &Run::model;

/// Parses "W,0" or "W" as W; "-1,-1" and "-1,0" as 0, no window.
std::string set_window(Run& run, const Words& words) {
  constexpr const char* kRule = "must be W,0: W earlier tokens and none later";
  std::string text = fmt::format("{}", fmt::join(words, ","));
  std::erase_if(text, [](char c) { return c == '(' || c == ')' || c == ' '; });
  const std::size_t comma = text.find(',');
  std::int64_t before = 0, after = 0;
  if (!read_number(std::string_view(text).substr(0, comma), before) || before < -1) return kRule;
  if (comma != std::string::npos && !read_number(std::string_view(text).substr(comma + 1), after))
    return kRule;
  if (after != 0 && !(before == -1 && after == -1)) return kRule;
  run.model.window_size = before == -1 ? 0 : before;
  return "";
}

std::optional<Words> get_window(const Run& run) { return Words{fmt::format("{},0", run.model.window_size)}; }

/// --group-query-attention is not stored; it is on if there are fewer groups than heads.
std::optional<Words> get_grouped(const Run& run) {
  const Model& m = run.model;
  return Words{m.num_query_groups > 0 && m.num_query_groups < m.num_attention_heads ? "true" : "false"};
}

/// Sets the model and the architecture that bert implies, including the binary head unless it was given.
std::string set_model_type(Run& run, const Words& words) {
  const std::string before = run.model_type;
  std::string violated = read(run.model_type, words);
  if (run.model_type == before) return violated;
  Model& m = run.model;
  m.bidirectional = m.lm_head_transform = run.model_type == "bert";
  if (!run.given.contains("bert_binary_head")) m.bert_binary_head = m.bidirectional;
  return violated;
}
std::optional<Words> get_model_type(const Run& run) { return Words{run.model_type}; }

void run_settings(Table& t) {
  t.group("run");
  t.special("--config",
            "YAML settings file with flat keys and `<<` merges; repeatable, later files win over "
            "earlier ones, the command line over all")
      .accessors(Kind::kText, nullptr, nullptr)
      .colonnade_only()
      .common();
  t.special("--yaml-cfg",
            "Megatron's nested YAML file with sections language_model and model_parallel; unlike in "
            "Megatron, the command line overrides it")
      .accessors(Kind::kText, nullptr, nullptr);
  t.special("--model", "model: gpt, t5 or bert; also the argument of `pretrain`")
      .accessors(Kind::kText, &set_model_type, &get_model_type)
      .choices({"gpt", "t5", "bert"})
      .alias("--family")
      .colonnade_only();
}

void sizes(Table& t) {
  t.model_group("network size");
  t.add<kModel, &Model::num_layers>("--num-layers", "number of transformer layers (t5: decoder layers)")
      .alias("--decoder-num-layers")
      .range(0, 1'000'000)
      .common();
  t.add<kModel, &Model::encoder_num_layers>("--encoder-num-layers",
                                            "number of encoder layers (t5); 0: as many as in the decoder")
      .range(0, 1'000'000)
      .megatron_default("unset");
  t.add<kModel, &Model::hidden_size>("--hidden-size", "transformer hidden size")
      .range(0, 1'000'000'000)
      .common();
  t.add<kModel, &Model::ffn_hidden_size>(
       "--ffn-hidden-size",
       "MLP hidden size; 0: 4 x hidden size, with SwiGLU 2/3 of that, rounded down to a "
       "multiple of 64")
      .range(0, 1'000'000'000)
      .common();
  t.add<kModel, &Model::num_attention_heads>("--num-attention-heads", "number of attention heads")
      .range(0, 1'000'000'000)
      .common();
  t.special("--group-query-attention", "grouped-query attention with --num-query-groups key/value heads")
      .accessors(Kind::kSwitch, nullptr, &get_grouped)
      .common();
  t.add<kModel, &Model::num_query_groups>(
       "--num-query-groups",
       "number of key/value heads, with --group-query-attention (default there: 1); 0: one per "
       "attention head")
      .range(0, 1'000'000'000)
      .common();
  t.add<kModel, &Model::kv_channels>("--kv-channels", "head size; 0: hidden size / attention heads")
      .range(0, 1'000'000'000);
  t.add<kModel, &Model::max_position_embeddings>(
       "--max-position-embeddings",
       "maximum sequence length; 0: sequence length, unless positions are learned")
      .range(0, 1'000'000'000)
      .common();
  t.add<kModel, &Model::make_vocab_size_divisible_by>(
       "--make-vocab-size-divisible-by",
       "the vocabulary is padded in memory to a multiple of this x tensor-parallel size; "
       "checkpoints store the unpadded rows")
      .range(1, 1'000'000);
}

void yarn(Table& t) {
  t.add<kModel, &Model::rope_type>(
      "--rope-type",
      "RoPE of multi-latent attention: rope or yarn; unset: yarn, as in Megatron, equal to "
      "rope at --rotary-scaling-factor 1; other attention supports rope only");
  t.add<kModel, &Model::rotary_scaling_factor>(
       "--rotary-scaling-factor",
       "YaRN ratio of new to old context length; multi-latent attention also scales scores by "
       "(1 + 0.1 mscale-all-dim ln factor)^2, with either --rope-type")
      .at_least(1);
  t.add<kModel, &Model::mscale>(
       "--mscale", "YaRN attention factor: (1 + 0.1 mscale ln factor) / (1 + 0.1 mscale-all-dim ln factor)")
      .at_least(0);
  t.add<kModel, &Model::mscale_all_dim>("--mscale-all-dim",
                                        "denominator of the YaRN attention factor; see --mscale")
      .at_least(0);
  t.add<kModel, &Model::yarn_original_max_position_embeddings>(
       "--yarn-original-max-position-embeddings",
       "context length before YaRN scaling, also for multi-latent attention, where Megatron "
       "uses 4096")
      .unit("tokens")
      .at_least(1)
      .megatron_default("unset");
  t.add<kModel, &Model::yarn_beta_fast>(
       "--yarn-beta-fast", "YaRN keeps frequencies with more rotations than this over the original context")
      .at_least(0)
      .megatron_default("unset");
  t.add<kModel, &Model::yarn_beta_slow>(
       "--yarn-beta-slow",
       "YaRN interpolates frequencies with fewer rotations than this over the original context")
      .at_least(0)
      .megatron_default("unset");
  t.add<kModel, &Model::yarn_correction_range_round_to_int>(
       "--yarn-correction-range-round-to-int",
       "round the ends of YaRN's correction range to integer dimensions")
      .off_alias("--no-yarn-correction-range-round-to-int")
      .megatron_default("unset");
}

void longrope(Table& t) {
  t.add<kModel, &Model::query_scaling_beta>(
       "--query-scaling-beta",
       "multiply queries at position p by 1 + beta ln(1 + floor(p / L)), L being the context length before YaRN; "
       "0: off")
      .at_least(0)
      .colonnade_only();
  t.add<kModel, &Model::longrope_short_factor>(
       "--longrope-short-factor",
       "LongRoPE: list with a divisor of each RoPE frequency, for sequences within the original context; empty: "
       "no LongRoPE")
      .colonnade_only();
  t.add<kModel, &Model::longrope_long_factor>(
       "--longrope-long-factor", "LongRoPE: the divisors for sequences beyond the original context")
      .colonnade_only();
  t.add<kModel, &Model::longrope_original_max_position_embeddings>(
       "--longrope-original-max-position-embeddings", "context length before LongRoPE")
      .unit("tokens")
      .at_least(2)
      .colonnade_only();
  t.add<kModel, &Model::longrope_attention_factor>(
       "--longrope-attention-factor",
       "LongRoPE: factor on cosines and sines; unset: sqrt(1 + ln(maximum / original length) / ln(original "
       "length))")
      .at_least(0)
      .colonnade_only();
}

void positions(Table& t) {
  t.model_group("positions");
  t.add<kModel, &Model::position_embedding>("--position-embedding-type", "type of position embedding")
      .common();
  t.shorthand("--use-rotary-position-embeddings", "").shorthand("position_embedding_type", "rope");
  t.shorthand("--no-position-embedding",
              "no learned position embedding; requires --position-embedding-type rope or none")
      .key("add_position_embedding");
  t.add<kModel, &Model::rotary_base>("--rotary-base", "RoPE base (theta)").at_least(1);
  t.add<kModel, &Model::rotary_base_local>(
       "--rotary-base-local", "RoPE base of sliding-window layers, never scaled; unset: --rotary-base")
      .at_least(1)
      .colonnade_only();
  t.add<kModel, &Model::rotary_percent>("--rotary-percent", "fraction of each head that is rotated")
      .range(0, 1);
  t.add<kModel, &Model::rotary_interleaved>("--rotary-interleaved",
                                            "rotate adjacent pairs of dimensions instead of halves");
  t.add<kModel, &Model::rotary_seq_len_interpolation_factor>(
       "--rotary-seq-len-interpolation-factor", "linear RoPE scaling: positions are divided by this factor")
      .at_least(1);
  t.add<kModel, &Model::use_rope_scaling>("--use-rope-scaling", "Llama 3 RoPE scaling");
  t.add<kModel, &Model::rope_scaling_factor>("--rope-scaling-factor", "factor of Llama 3 RoPE scaling")
      .at_least(1);
  t.add<kModel, &Model::rope_low_freq_factor>("--rope-low-freq-factor",
                                              "low-frequency factor of Llama 3 RoPE scaling")
      .at_least(0)
      .colonnade_only();
  t.add<kModel, &Model::rope_high_freq_factor>("--rope-high-freq-factor",
                                               "high-frequency factor of Llama 3 RoPE scaling")
      .at_least(0)
      .colonnade_only();
  t.add<kModel, &Model::rope_original_max_position_embeddings>("--rope-original-max-position-embeddings",
                                                               "context length before Llama 3 RoPE scaling")
      .unit("tokens")
      .at_least(1)
      .colonnade_only();
  yarn(t);
  longrope(t);
  t.add<kModel, &Model::no_rope_freq>(
      "--no-rope-freq",
      "layers without RoPE: N for every N-th layer, or a list with 1 for each such layer; empty: none");
  t.add<kModel, &Model::relative_attention_num_buckets>(
       "--relative-attention-num-buckets", "number of relative position buckets, both directions together")
      .range(4, 1'000'000);
  t.add<kModel, &Model::relative_attention_max_distance>("--relative-attention-max-distance",
                                                         "distances of this value and above share one bucket")
      .unit("tokens")
      .range(2, 1'000'000'000);
}

void layers(Table& t) {
  t.model_group("layers");
  t.add<kModel, &Model::normalization>("--normalization", "normalization layer type").common();
  t.add<kModel, &Model::norm_epsilon>("--norm-epsilon", "epsilon added to the variance in norms")
      .key("layernorm_epsilon")
      .at_least(0);
  t.add<kModel, &Model::apply_layernorm_1p>("--apply-layernorm-1p",
                                            "store norm weights as gamma - 1 (zero-centered gamma)")
      .key("layernorm_zero_centered_gamma");
  t.add<kModel, &Model::layernorm_bias>("--layernorm-bias", "biases of LayerNorm").colonnade_only();
  t.add<kModel, &Model::qk_layernorm>("--qk-layernorm", "normalize queries and keys per head");
  t.add<kModel, &Model::qk_norm_across_heads>(
       "--qk-norm-across-heads",
       "with --qk-layernorm, normalize all query heads of a token together, and all its key heads")
      .colonnade_only();
  t.add<kModel, &Model::qk_norm_after_rope>("--qk-norm-after-rope",
                                            "with --qk-layernorm, normalize queries and keys after RoPE")
      .colonnade_only();
  t.add<kModel, &Model::qk_l2_norm>("--qk-l2-norm",
                                    "divide each query and key head by its root mean square, without weight");
  t.add<kModel, &Model::activation>(
       "--activation",
       "MLP activation; if unset: gelu-tanh with biases (as Megatron's fused kernel), else gelu")
      .colonnade_only();
  t.shorthand("--swiglu", "").shorthand("activation", "swiglu").common();
  t.shorthand("--squared-relu", "").shorthand("activation", "squared-relu");
  t.shorthand("--openai-gelu", "").shorthand("activation", "gelu-tanh");
  t.shorthand("--quick-geglu", "").shorthand("activation", "quick-geglu");
  t.add<kModel, &Model::glu_linear_offset>("--glu-linear-offset",
                                           "offset added to the linear branch of quick-geglu");
  t.add<kModel, &Model::activation_func_clamp_value>(
       "--activation-func-clamp-value",
       "clamp of quick-geglu: gate branch at most c, linear branch within [-c, c]; unset: no "
       "clamp")
      .at_least(0);
  t.shorthand("--no-bias-gelu-fusion", "use the erf form of plain GELU even with biases")
      .key("bias_gelu_fusion");
  t.add<kModel, &Model::add_bias_linear>("--add-bias-linear", "biases in linear layers")
      .off_alias("--disable-bias-linear")
      .common();
  t.add<kModel, &Model::add_qkv_bias>("--add-qkv-bias", "QKV biases even with --disable-bias-linear");
}

void attention(Table& t) {
  t.add<kModel, &Model::window_size>(
       "--window-size",
       "sliding-window attention W,0: each token attends to W earlier tokens and itself; 0,0: "
       "full attention")
      .accessors(Kind::kText, &set_window, &get_window)
      .unit("tokens");
  t.add<kModel, &Model::window_attn_skip_freq>(
      "--window-attn-skip-freq",
      "N: every N-th layer uses full attention; or a list with 1 per windowed layer; empty: "
      "all layers are windowed");
  t.add<kModel, &Model::clip_qkv>("--clip-qkv",
                                  "clamp queries, keys and values to +- this, before RoPE; 0: off")
      .at_least(0)
      .colonnade_only();
  t.add<kModel, &Model::softmax_type>(
      "--softmax-type",
      "extra term in the attention softmax denominator: none (vanilla), exp(0) (off-by-one), "
      "or a learnable logit per head");
  t.add<kModel, &Model::attention_output_gate>(
      "--attention-output-gate",
      "multiply the attention output by the sigmoid of a gate that the QKV projection computes per channel");
  t.add<kModel, &Model::attn_logit_softcapping>(
       "--attn-logit-softcapping",
       "attention scores s become c tanh(s / c); disables fused attention, so scores are materialized; "
       "0: off")
      .at_least(0)
      .colonnade_only();
  t.add<kModel, &Model::query_pre_attn_scalar>(
       "--query-pre-attn-scalar", "attention scores are divided by the square root of this; unset: head size")
      .at_least(1)
      .colonnade_only();
  t.add<kModel, &Model::apply_query_key_layer_scaling>(
      "--apply-query-key-layer-scaling",
      "divide queries by the layer number and multiply scores by it before the softmax: same "
      "function, later overflow in fp16; any dtype");
}

void embeddings_logits_and_dropout(Table& t) {
  t.add<kModel, &Model::parallel_residual>(
       "--parallel-residual",
       "attention and MLP read the same norm and are added to the residual together, as in GPT-J, Falcon and Cohere")
      .colonnade_only();
  t.add<kModel, &Model::sandwich_norm>(
       "--sandwich-norm", "additional norms on the outputs of attention and MLP before the residual add")
      .colonnade_only();
  t.add<kModel, &Model::input_norms>(
       "--input-norms",
       "norms on the inputs of attention and MLP; without them, only --sandwich-norm's on the outputs")
      .colonnade_only();
  t.add<kModel, &Model::residual_factor>("--residual-factor",
                                         "factor on the outputs of attention and MLP before the residual add")
      .at_least(0)
      .colonnade_only();
  t.add<kModel, &Model::embedding_factor>("--embedding-factor", "factor on embeddings")
      .at_least(0)
      .colonnade_only();
  t.add<kModel, &Model::logit_factor>("--logit-factor", "factor on logits").at_least(0).colonnade_only();
  t.add<kModel, &Model::scale_embeddings>("--scale-embeddings",
                                          "multiply embeddings by the square root of the hidden size")
      .colonnade_only();
  t.add<kModel, &Model::untie_embeddings_and_output_weights>(
       "--untie-embeddings-and-output-weights", "separate weights for the embedding and the output layer")
      .common();
  t.add<kModel, &Model::output_layer_bias>(
       "--output-layer-bias",
       "bias on the logits; unset: on for bert and for t5 with tied embeddings, as in Megatron")
      .colonnade_only();
  t.add<kModel, &Model::scale_decoder_outputs>(
       "--scale-decoder-outputs",
       "divide hidden states by the square root of the hidden size before the output layer, as "
       "in the original T5")
      .colonnade_only();
  t.add<kModel, &Model::final_logit_softcapping>("--final-logit-softcapping",
                                                 "logits z become c tanh(z / c); 0: off")
      .at_least(0)
      .colonnade_only();
  t.add<kModel, &Model::hidden_dropout>("--hidden-dropout", "dropout probability of hidden states")
      .range(0, 1)
      .training_only();
  t.add<kModel, &Model::attention_dropout>(
       "--attention-dropout",
       "dropout probability of attention weights; values above 0 disable fused attention")
      .range(0, 1)
      .training_only();
}

void mup(Table& t) {
  t.model_group("muP");
  t.add<kModel, &Model::use_mup>(
      "--use-mup",
      "muP: initial values, learning rates, logits and attention scores scale with the width, so that "
      "hyperparameters of a narrow model suit wider ones");
  t.add<kModel, &Model::mup_base_hidden_size>(
       "--mup-base-hidden-size", "hidden size of the narrow model; 0: this model's, a width multiplier of 1")
      .range(0, 1'000'000'000);
  t.add<kModel, &Model::mup_embedding_mult>("--mup-embedding-mult", "factor on embeddings");
  t.add<kModel, &Model::mup_output_mult>("--mup-output-mult",
                                         "factor on logits; 1: 1 / width multiplier, as in Megatron");
  t.add<kModel, &Model::mup_base_head_dim>(
       "--mup-base-head-dim",
       "head size of the narrow model: scores are multiplied by its square root; unset: 1")
      .at_least(0);
  t.add<kModel, &Model::mup_attn_scale_power>(
      "--mup-attn-scale-power",
      "scores are divided by this power of the head size, instead of its square root");
}

/// Settings of BERT's layers and heads.
void bert(Table& t) {
  t.add<kModel, &Model::bert_binary_head>(
       "--bert-binary-head", "binary sentence-order head and loss of bert; on by default for bert")
      .off_alias("--bert-no-binary-head")
      .megatron_default("true");
  t.add<kModel, &Model::num_tokentypes>(
       "--num-tokentypes", "number of token types of bert; 0: two with the binary head, else none")
      .range(0, 1'000'000)
      .colonnade_only();
  t.add<kModel, &Model::apply_residual_connection_post_layernorm>(
      "--apply-residual-connection-post-layernorm",
      "take the residual from the norm's output instead of its input, as in the original BERT");
}

void initialization_and_precision(Table& t) {
  t.group("initial values and precision");
  t.add<&Run::training, &Training::seed>("--seed", "random seed of initialization, data order and dropout")
      .at_least(0);
  t.add<kModel, &Model::init_method_std>(
       "--init-method-std",
       "standard deviation of initial weights; divided by sqrt(2 x layers) in output layers")
      .at_least(0);
  t.add<kModel, &Model::embedding_init_method_std>(
       "--embedding-init-method-std", "standard deviation of initial embeddings; unset: --init-method-std")
      .at_least(0);
  t.add<kModel, &Model::init_method_xavier_uniform>(
      "--init-method-xavier-uniform",
      "initial values of all matrices uniform in +-sqrt(6 / (inputs + outputs)), also of embeddings unless "
      "--embedding-init-method-std differs from --init-method-std");
  t.add<kModel, &Model::params_dtype>("--params-dtype", "dtype of weights and activations")
      .choices({"fp32", "bf16", "fp16"})
      .colonnade_only();
  t.shorthand("--bf16", "").shorthand("params_dtype", "bf16").common();
  t.shorthand("--fp16", "").shorthand("params_dtype", "fp16");
  t.add<kModel, &Model::fp32_residual_connection>(
      "--fp32-residual-connection",
      "with --bf16 or --fp16, keep the residual stream and pipeline messages in fp32; norms read it, and all "
      "other layers compute in 16 bits");
  t.add<&Run::optimizer, &Optimizer::loss_scale>("--loss-scale",
                                                 "constant loss scale; unset: dynamic with fp16, else none")
      .at_least(0);
  t.add<&Run::optimizer, &Optimizer::initial_loss_scale>("--initial-loss-scale", "initial dynamic loss scale")
      .at_least(1);
  t.add<&Run::optimizer, &Optimizer::min_loss_scale>("--min-loss-scale", "minimum dynamic loss scale")
      .at_least(0);
  t.add<&Run::optimizer, &Optimizer::loss_scale_window>(
       "--loss-scale-window", "steps without overflow before the loss scale doubles")
      .unit("steps")
      .at_least(1);
  t.add<&Run::optimizer, &Optimizer::hysteresis>("--hysteresis", "overflows before the loss scale halves")
      .unit("steps")
      .at_least(1);
}

}  // namespace

void add_model(Table& t) {
  run_settings(t);
  sizes(t);
  positions(t);
  layers(t);
  attention(t);
  embeddings_logits_and_dropout(t);
  bert(t);
  mup(t);
  initialization_and_precision(t);
}

}  // namespace colonnade::config
