// Settings of the model: sizes, switches, initial values, precision.
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

constexpr auto kModel = &Run::model;

/// "W,0" or "W" to W; "-1,-1" and "-1,0" to 0, no window.
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

/// --group-query-attention is not kept: fewer groups than heads say it.
std::optional<Words> get_grouped(const Run& run) {
  const Model& m = run.model;
  return Words{m.num_query_groups > 0 && m.num_query_groups < m.num_attention_heads ? "true" : "false"};
}

/// What a BERT always is, and that it has a binary head unless it is told otherwise.
std::string set_family(Run& run, const Words& words) {
  const std::string before = run.family;
  std::string broken = read(run.family, words);
  if (run.family == before) return broken;
  Model& m = run.model;
  m.bidirectional = m.lm_head_transform = run.family == "bert";
  if (!run.given.contains("bert_binary_head")) m.bert_binary_head = m.bidirectional;
  return broken;
}
std::optional<Words> get_family(const Run& run) { return Words{run.family}; }

void run_itself(Table& t) {
  t.group("run");
  t.special("--config",
            "YAML file of settings: flat keys, `<<` merges; the command line wins; several: later ones win")
      .how(Kind::kText, nullptr, nullptr)
      .own()
      .common();
  t.special(
       "--yaml-cfg",
       "Megatron's nested YAML file, with sections language_model and model_parallel; the command line wins, "
       "which Megatron ignores beside it")
      .how(Kind::kText, nullptr, nullptr);
  t.special("--model", "family of models; also the word after `pretrain`")
      .how(Kind::kText, &set_family, &get_family)
      .choices({"gpt", "t5", "bert"})
      .alias("--family")
      .own();
}

void sizes(Table& t) {
  t.group("network size");
  t.add<kModel, &Model::num_layers>("--num-layers", "transformer layers; of t5 those of the decoder")
      .alias("--decoder-num-layers")
      .range(0, 1'000'000)
      .common();
  t.add<kModel, &Model::encoder_num_layers>("--encoder-num-layers",
                                            "of t5: layers of the encoder; 0: as many as the decoder")
      .range(0, 1'000'000)
      .megatron_default("unset");
  t.add<kModel, &Model::hidden_size>("--hidden-size", "width of the model").range(0, 1'000'000'000).common();
  t.add<kModel, &Model::ffn_hidden_size>(
       "--ffn-hidden-size",
       "width of the MLP; 0: 4 x hidden size, with SwiGLU two thirds of it in steps of 64")
      .range(0, 1'000'000'000)
      .common();
  t.add<kModel, &Model::num_attention_heads>("--num-attention-heads", "attention heads")
      .range(0, 1'000'000'000)
      .common();
  t.special("--group-query-attention", "heads share keys and values in --num-query-groups groups")
      .how(Kind::kSwitch, nullptr, &get_grouped)
      .common();
  t.add<kModel, &Model::num_query_groups>(
       "--num-query-groups",
       "key/value heads; with --group-query-attention only, 1 when not given; 0: as many as heads")
      .range(0, 1'000'000'000)
      .common();
  t.add<kModel, &Model::kv_channels>("--kv-channels", "size of one head; 0: hidden size / heads")
      .range(0, 1'000'000'000);
  t.add<kModel, &Model::max_position_embeddings>(
       "--max-position-embeddings",
       "longest sequence the positions allow; without learned positions 0 means the sequence length")
      .range(0, 1'000'000'000)
      .common();
  t.add<kModel, &Model::make_vocab_size_divisible_by>(
       "--make-vocab-size-divisible-by",
       "vocabulary rows are filled up in memory to a multiple of this times the tensor size; checkpoints "
       "hold the true rows")
      .range(1, 1'000'000);
}

void yarn(Table& t) {
  t.add<kModel, &Model::rope_type>(
      "--rope-type",
      "rotary embedding of multi-latent attention: rope or yarn, beside --position-embedding-type; unset: yarn, as in "
      "Megatron, which without --rotary-scaling-factor above 1 equals rope; other attention knows rope only");
  t.add<kModel, &Model::rotary_scaling_factor>(
       "--rotary-scaling-factor",
       "YaRN's factor: new context length over the old one; multi-latent attention also multiplies "
       "scores by (1 + 0.1 mscale-all-dim ln factor)^2, with either --rope-type")
      .at_least(1);
  t.add<kModel, &Model::mscale>("--mscale",
                                "YaRN's attention factor is (1 + 0.1 mscale ln factor) over the same of "
                                "--mscale-all-dim")
      .at_least(0);
  t.add<kModel, &Model::mscale_all_dim>("--mscale-all-dim", "see --mscale").at_least(0);
  t.add<kModel, &Model::yarn_original_max_position_embeddings>(
       "--yarn-original-max-position-embeddings",
       "context length before YaRN's scaling, also of multi-latent "
       "attention, where Megatron has 4096")
      .unit("tokens")
      .at_least(1)
      .megatron_default("unset");
  t.add<kModel, &Model::yarn_beta_fast>("--yarn-beta-fast",
                                        "YaRN keeps frequencies that turn more often over the old length")
      .at_least(0)
      .megatron_default("unset");
  t.add<kModel, &Model::yarn_beta_slow>("--yarn-beta-slow",
                                        "YaRN stretches frequencies that turn less often over the old length")
      .at_least(0)
      .megatron_default("unset");
  t.add<kModel, &Model::yarn_correction_range_round_to_int>(
       "--yarn-correction-range-round-to-int", "YaRN's blend begins and ends at whole numbers of frequencies")
      .off("--no-yarn-correction-range-round-to-int")
      .megatron_default("unset");
}

void positions(Table& t) {
  t.group("positions");
  t.add<kModel, &Model::position_embedding>("--position-embedding-type", "how tokens know where they stand")
      .common();
  t.shorthand("--use-rotary-position-embeddings", "").shorthand("position_embedding_type", "rope");
  t.shorthand("--no-position-embedding",
              "no learned positions; needs rope or none as --position-embedding-type")
      .key("add_position_embedding");
  t.add<kModel, &Model::rotary_base>("--rotary-base", "base of the rotary frequencies").at_least(1);
  t.add<kModel, &Model::rotary_base_local>(
       "--rotary-base-local",
       "base of the rotary frequencies of layers with a window, which nothing scales; unset: --rotary-base")
      .at_least(1)
      .own();
  t.add<kModel, &Model::rotary_percent>("--rotary-percent", "share of each head that is rotated").range(0, 1);
  t.add<kModel, &Model::rotary_interleaved>("--rotary-interleaved", "rotate pairs of neighbours, not halves");
  t.add<kModel, &Model::rotary_seq_len_interpolation_factor>("--rotary-seq-len-interpolation-factor",
                                                             "positions are divided by this (linear scaling)")
      .at_least(1);
  t.add<kModel, &Model::use_rope_scaling>("--use-rope-scaling",
                                          "Llama 3's scaling of the rotary frequencies");
  t.add<kModel, &Model::rope_scaling_factor>("--rope-scaling-factor", "factor of Llama 3's scaling")
      .at_least(1);
  t.add<kModel, &Model::rope_low_freq_factor>("--rope-low-freq-factor",
                                              "low frequency factor of Llama 3's scaling")
      .at_least(0)
      .own();
  t.add<kModel, &Model::rope_high_freq_factor>("--rope-high-freq-factor",
                                               "high frequency factor of Llama 3's scaling")
      .at_least(0)
      .own();
  t.add<kModel, &Model::rope_original_max_position_embeddings>("--rope-original-max-position-embeddings",
                                                               "context length before Llama 3's scaling")
      .unit("tokens")
      .at_least(1)
      .own();
  yarn(t);
  t.add<kModel, &Model::relative_attention_num_buckets>(
       "--relative-attention-num-buckets",
       "of relative positions: distances that have a bias of their own, those of both directions together")
      .range(4, 1'000'000);
  t.add<kModel, &Model::relative_attention_max_distance>(
       "--relative-attention-max-distance", "of relative positions: from here on all distances share a bias")
      .unit("tokens")
      .range(2, 1'000'000'000);
}

void switches(Table& t) {
  t.group("layers");
  t.add<kModel, &Model::normalization>("--normalization", "kind of norm").common();
  t.add<kModel, &Model::norm_epsilon>("--norm-epsilon", "added to the variance")
      .key("layernorm_epsilon")
      .at_least(0);
  t.add<kModel, &Model::apply_layernorm_1p>("--apply-layernorm-1p", "gamma is kept as gamma - 1")
      .key("layernorm_zero_centered_gamma");
  t.add<kModel, &Model::qk_layernorm>("--qk-layernorm", "norm of queries and keys per head");
  t.add<kModel, &Model::activation>("--activation",
                                    "function of the MLP; when nothing says it: gelu-tanh with biases "
                                    "(Megatron's fused kernel), else gelu")
      .own();
  t.shorthand("--swiglu", "").shorthand("activation", "swiglu").common();
  t.shorthand("--squared-relu", "").shorthand("activation", "squared-relu");
  t.shorthand("--openai-gelu", "").shorthand("activation", "gelu-tanh");
  t.shorthand("--quick-geglu", "").shorthand("activation", "quick-geglu");
  t.add<kModel, &Model::glu_linear_offset>("--glu-linear-offset",
                                           "with quick-geglu: added to what the gate is multiplied with");
  t.add<kModel, &Model::activation_func_clamp_value>(
       "--activation-func-clamp-value",
       "with quick-geglu: the gate is at most this, the other factor at most this far from 0; unset: no bound")
      .at_least(0);
  t.shorthand("--no-bias-gelu-fusion", "plain GELU is the erf form also with biases").key("bias_gelu_fusion");
  t.add<kModel, &Model::add_bias_linear>("--add-bias-linear", "biases of the linear layers")
      .off("--disable-bias-linear")
      .common();
  t.add<kModel, &Model::add_qkv_bias>("--add-qkv-bias",
                                      "biases of queries, keys and values, also with --disable-bias-linear");
  t.add<kModel, &Model::window_size>("--window-size",
                                     "W,0: each token sees W earlier ones and itself; 0,0: all")
      .how(Kind::kText, &set_window, &get_window)
      .unit("tokens");
  t.add<kModel, &Model::window_attn_skip_freq>(
      "--window-attn-skip-freq",
      "N: every N-th layer has no window; or a list with 1 for each layer that has it; empty: all have");
  t.add<kModel, &Model::softmax_type>("--softmax-type",
                                      "what else scores compete with: nothing, exp(0), or a learned logit of "
                                      "each head");
  t.add<kModel, &Model::attn_logit_softcapping>(
       "--attn-logit-softcapping",
       "scores s become c tanh(s / c); 0: they do not; takes a slower path that writes them to memory")
      .at_least(0)
      .own();
  t.add<kModel, &Model::query_pre_attn_scalar>(
       "--query-pre-attn-scalar", "scores are divided by its square root; unset: by that of the head's size")
      .at_least(1)
      .own();
  t.add<kModel, &Model::apply_query_key_layer_scaling>(
      "--apply-query-key-layer-scaling",
      "queries are divided by the number of their layer before the scores are computed, and the scores multiplied by "
      "it before the softmax, with every dtype: the same model, whose scores overflow later in fp16; the number "
      "counts from 1 in the encoder, the decoder and the multi-token prediction layers each");
  t.add<kModel, &Model::sandwich_norm>("--sandwich-norm",
                                       "norms of the outputs of attention and MLP too, before they are added")
      .own();
  t.add<kModel, &Model::scale_embeddings>("--scale-embeddings",
                                          "embeddings are multiplied by the square root of the hidden size")
      .own();
  t.add<kModel, &Model::untie_embeddings_and_output_weights>("--untie-embeddings-and-output-weights",
                                                             "the output layer has its own weights")
      .common();
  t.add<kModel, &Model::output_layer_bias>(
       "--output-layer-bias",
       "logits have a bias; unset: those of bert do, and of t5 where the output layer is tied, as Megatron's")
      .own();
  t.add<kModel, &Model::scale_decoder_outputs>(
       "--scale-decoder-outputs",
       "logits are made of hidden states over the root of the hidden size, as the first T5's")
      .own();
  t.add<kModel, &Model::final_logit_softcapping>("--final-logit-softcapping",
                                                 "logits z become c tanh(z / c); 0: they do not")
      .at_least(0)
      .own();
  t.add<kModel, &Model::hidden_dropout>("--hidden-dropout", "dropout of hidden states").range(0, 1);
  t.add<kModel, &Model::attention_dropout>("--attention-dropout",
                                           "dropout of attention weights; above 0 a slower path is taken")
      .range(0, 1);
}

/// Of layers and heads that BERT has.
void bert(Table& t) {
  t.add<kModel, &Model::bert_binary_head>("--bert-binary-head",
                                          "of bert: a head that tells whether the two parts of a sample are "
                                          "swapped, and its loss; on unless it is told otherwise")
      .off("--bert-no-binary-head")
      .megatron_default("true");
  t.add<kModel, &Model::num_tokentypes>(
       "--num-tokentypes",
       "of bert: kinds of tokens that have an embedding of their own; 0: two "
       "with a binary head, else none")
      .range(0, 1'000'000)
      .own();
  t.add<kModel, &Model::apply_residual_connection_post_layernorm>(
      "--apply-residual-connection-post-layernorm",
      "what attention and MLP give is added to their norm's output, not to its input; BERT as published");
}

void values(Table& t) {
  t.group("initial values and precision");
  t.add<&Run::training, &Training::seed>("--seed", "of initial values, data order and dropout").at_least(0);
  t.add<kModel, &Model::init_method_std>(
       "--init-method-std",
       "standard deviation of initial weights; output layers: divided by sqrt(2 x layers)")
      .at_least(0);
  t.add<kModel, &Model::embedding_init_method_std>("--embedding-init-method-std",
                                                   "that of embeddings; unset: as --init-method-std")
      .at_least(0);
  t.add<kModel, &Model::params_dtype>("--params-dtype", "type of weights and activations").own();
  t.shorthand("--bf16", "").shorthand("params_dtype", "bf16").common();
  t.shorthand("--fp16", "").shorthand("params_dtype", "fp16");
  t.add<&Run::optimizer, &Optimizer::loss_scale>("--loss-scale",
                                                 "constant loss scale; unset: dynamic with fp16, else none")
      .at_least(0);
  t.add<&Run::optimizer, &Optimizer::initial_loss_scale>("--initial-loss-scale", "first dynamic loss scale")
      .at_least(1);
  t.add<&Run::optimizer, &Optimizer::min_loss_scale>("--min-loss-scale", "lowest dynamic loss scale")
      .at_least(0);
  t.add<&Run::optimizer, &Optimizer::loss_scale_window>("--loss-scale-window",
                                                        "steps without overflow until the scale doubles")
      .unit("steps")
      .at_least(1);
  t.add<&Run::optimizer, &Optimizer::hysteresis>("--hysteresis", "overflows until the scale halves")
      .unit("steps")
      .at_least(1);
}

}  // namespace

void add_model(Table& t) {
  run_itself(t);
  sizes(t);
  positions(t);
  switches(t);
  bert(t);
  values(t);
}

}  // namespace colonnade::config
