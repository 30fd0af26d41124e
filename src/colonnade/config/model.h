// Model settings: sizes and architecture of a transformer.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "colonnade/config/dtypes.h"
#include "colonnade/config/latent_attention.h"
#include "colonnade/config/moe.h"

namespace colonnade::config {

enum class PositionEmbedding { kLearnedAbsolute, kRope, kYarn, kRelative, kNone };
enum class RopeType { kRope, kYarn };
enum class Normalization { kLayerNorm, kRmsNorm };
enum class Activation { kGeluErf, kGeluTanh, kSquaredRelu, kSwiglu, kGeglu, kGegluTanh, kQuickGeglu, kRelu };
enum class SoftmaxType { kVanilla, kOffByOne, kLearnable };

/// Architecture of a model: a single stack (GPT, BERT), or encoder and decoder if encoder_num_layers > 0
/// (T5). After `config::derive` every optional with a default is set.
struct Model {
  std::int64_t num_layers = 0;               ///< --num-layers, of the decoder
  std::int64_t encoder_num_layers = 0;       ///< --encoder-num-layers; 0: no encoder
  std::int64_t hidden_size = 0;              ///< --hidden-size
  std::int64_t ffn_hidden_size = 0;          ///< --ffn-hidden-size; 0: 4h, with SwiGLU int(4h*2/3/64)*64
  std::int64_t num_attention_heads = 0;      ///< --num-attention-heads
  std::int64_t num_query_groups = 0;         ///< --num-query-groups with --group-query-attention; 0: heads
  std::int64_t kv_channels = 0;              ///< --kv-channels, head size; 0: hidden / heads
  std::int64_t vocab_size = 0;               ///< unpadded size, from --vocab-size or the tokenizer
  std::int64_t max_position_embeddings = 0;  ///< --max-position-embeddings
  std::int64_t make_vocab_size_divisible_by = 128;  ///< --make-vocab-size-divisible-by; memory layout only

  PositionEmbedding position_embedding = PositionEmbedding::kLearnedAbsolute;  ///< --position-embedding-type
  double rotary_base = 10000;                                                  ///< --rotary-base
  double rotary_percent = 1.0;                                                 ///< --rotary-percent
  bool rotary_interleaved = false;                                             ///< --rotary-interleaved
  double rotary_seq_len_interpolation_factor =
      1.0;                             ///< --rotary-seq-len-interpolation-factor (linear scaling)
  bool use_rope_scaling = false;       ///< --use-rope-scaling (llama3)
  double rope_scaling_factor = 8.0;    ///< --rope-scaling-factor
  double rope_low_freq_factor = 1.0;   ///< llama3's low_freq_factor; from a Hugging Face config
  double rope_high_freq_factor = 4.0;  ///< llama3's high_freq_factor; from a Hugging Face config
  std::int64_t rope_original_max_position_embeddings = 8192;  ///< llama3's old context length
  /// --rope-type: RoPE of multi-latent attention, independent of position_embedding; unset: yarn
  std::optional<RopeType> rope_type;
  double rotary_scaling_factor = 1.0;  ///< --rotary-scaling-factor: YaRN's ratio of new to old context length
  double mscale = 1.0;                 ///< --mscale: YaRN's log(factor) coefficient, numerator
  double mscale_all_dim = 0.0;         ///< --mscale-all-dim: the same, denominator
  std::int64_t yarn_original_max_position_embeddings = 4096;  ///< old context length
  double yarn_beta_fast = 32;                      ///< frequencies with more rotations are not scaled
  double yarn_beta_slow = 1;                       ///< frequencies with fewer rotations are interpolated
  bool yarn_correction_range_round_to_int = true;  ///< rounds the ends of the correction range
  double query_scaling_beta = 0;  ///< queries at p times 1 + beta ln(1 + floor(p / L)), L before YaRN; 0: off
  std::string longrope_short_factor;  ///< LongRoPE: list of divisors of the frequencies; "": no LongRoPE
  std::string longrope_long_factor;   ///< the same for sequences beyond the original context length
  std::int64_t longrope_original_max_position_embeddings = 4096;  ///< context length before LongRoPE
  std::optional<double> longrope_attention_factor;                ///< unset: from the context lengths
  std::string no_rope_freq;                            ///< --no-rope-freq, layers without RoPE; "": none
  std::int64_t relative_attention_num_buckets = 32;    ///< --relative-attention-num-buckets
  std::int64_t relative_attention_max_distance = 128;  ///< --relative-attention-max-distance
  std::optional<double> rotary_base_local;  ///< unscaled RoPE base of sliding-window layers; unset: one base

  Normalization normalization = Normalization::kLayerNorm;  ///< --normalization
  double norm_epsilon = 1e-5;                               ///< --norm-epsilon
  bool apply_layernorm_1p = false;    ///< --apply-layernorm-1p: gamma is stored as gamma - 1
  bool qk_layernorm = false;          ///< --qk-layernorm
  bool layernorm_bias = true;         ///< off: --no-layernorm-bias
  bool qk_norm_across_heads = false;  ///< --qk-layernorm normalizes all heads of a token together
  bool qk_norm_after_rope = false;    ///< --qk-layernorm normalizes rotated queries and keys
  bool qk_l2_norm = false;            ///< --qk-l2-norm: RMS norm of each query and key head, without weight

  Activation activation = Activation::kGeluErf;       ///< from --swiglu, --squared-relu, --openai-gelu, ...
  bool add_bias_linear = true;                        ///< off: --disable-bias-linear
  bool add_qkv_bias = false;                          ///< --add-qkv-bias; also on when add_bias_linear is
  double glu_linear_offset = 0;                       ///< --glu-linear-offset, of --quick-geglu
  std::optional<double> activation_func_clamp_value;  ///< --activation-func-clamp-value, of --quick-geglu
  double clip_qkv = 0;                 ///< queries, keys and values are clamped to +- this; 0: off
  std::int64_t window_size = 0;        ///< --window-size W,0: attends to W earlier tokens and itself; 0: all
  std::string window_attn_skip_freq;   ///< --window-attn-skip-freq; "": all layers are windowed
  bool attention_output_gate = false;  ///< --attention-output-gate: attention output times sigmoid(gate)
  SoftmaxType softmax_type = SoftmaxType::kVanilla;  ///< --softmax-type: extra term in the denominator
  double attn_logit_softcapping = 0;                 ///< scores s become c tanh(s / c); 0: off
  std::optional<double> query_pre_attn_scalar;  ///< scores are divided by its square root; unset: head size
  bool apply_query_key_layer_scaling = false;   ///< --apply-query-key-layer-scaling, see layer_number()
  bool parallel_residual = false;  ///< --parallel-residual: attention and MLP read one norm and are summed
  bool sandwich_norm = false;      ///< norms on attention and MLP outputs, before the residual add
  bool input_norms = true;         ///< norms on attention and MLP inputs; off: --no-input-norms
  double residual_factor = 1;      ///< factor on attention and MLP outputs before the residual add
  double embedding_factor = 1;     ///< factor on embeddings
  double logit_factor = 1;         ///< factor on logits
  bool scale_embeddings = false;   ///< embeddings times sqrt(hidden_size)
  Moe moe;                         ///< mixture of experts
  LatentAttention latent;          ///< multi-latent attention
  bool untie_embeddings_and_output_weights = false;  ///< --untie-embeddings-and-output-weights
  std::optional<bool> output_layer_bias;             ///< logit bias; unset: BERT, and T5 with tied embeddings
  bool bidirectional = false;                        ///< bidirectional attention (bert)
  std::int64_t num_tokentypes = 0;                   ///< token types (bert); 0: no token type embedding
  bool lm_head_transform = false;  ///< MLM head: logits from norm(gelu(dense(hidden state))) (bert)
  bool bert_binary_head = false;   ///< binary head for sentence order (bert); off: --bert-no-binary-head
  bool apply_residual_connection_post_layernorm = false;  ///< residual from the norm's output
  bool scale_decoder_outputs = false;  ///< decoder outputs are divided by sqrt(hidden_size)
  double final_logit_softcapping = 0;  ///< logits z become c tanh(z / c); 0: off

  std::int64_t mtp_num_layers = 0;       ///< --mtp-num-layers: MTP depth
  double mtp_loss_scaling_factor = 0.1;  ///< --mtp-loss-scaling-factor, of the mean MTP loss

  // muP (Yang et al. 2022); without use_mup the others have no effect. Source: Megatron's TransformerConfig.
  bool use_mup = false;                     ///< --use-mup
  std::int64_t mup_base_hidden_size = 0;    ///< --mup-base-hidden-size; 0: the hidden size
  double mup_embedding_mult = 1;            ///< --mup-embedding-mult, factor on embeddings
  double mup_output_mult = 1;               ///< --mup-output-mult, factor on logits; 1: 1 / width_mult()
  std::optional<double> mup_base_head_dim;  ///< --mup-base-head-dim
  double mup_attn_scale_power = 1;          ///< --mup-attn-scale-power

  double hidden_dropout = 0.1;     ///< --hidden-dropout
  double attention_dropout = 0.1;  ///< --attention-dropout
  double init_method_std = 0.02;   ///< --init-method-std; output layers std / sqrt(2 * num_layers)
  std::optional<double> embedding_init_method_std;  ///< --embedding-init-method-std
  bool init_method_xavier_uniform = false;          ///< --init-method-xavier-uniform, of all matrices
  Dtype params_dtype = Dtype::kFloat32;             ///< --bf16, --fp16; see dtypes_of()
  bool fp32_residual_connection = false;            ///< residual stream in fp32; see Dtypes::residual

  /// Layers of encoder and decoder; global layer indices count the encoder's first.
  [[nodiscard]] std::int64_t total_layers() const { return encoder_num_layers + num_layers; }
  [[nodiscard]] bool is_gated() const {
    return activation == Activation::kSwiglu || activation == Activation::kGeglu ||
           activation == Activation::kGegluTanh || activation == Activation::kQuickGeglu;
  }
  /// RoPE variant of self-attention; empty without RoPE. Multi-latent attention always has one, in addition
  /// to any position embedding. Source: Megatron's MLATransformerConfig.rope_type.
  [[nodiscard]] std::optional<RopeType> rotary_embedding() const {
    if (latent.enabled) return rope_type.value_or(RopeType::kYarn);
    if (position_embedding == PositionEmbedding::kRope) return RopeType::kRope;
    if (position_embedding == PositionEmbedding::kYarn) return RopeType::kYarn;
    return std::nullopt;
  }
  [[nodiscard]] bool has_rotary() const { return rotary_embedding().has_value(); }
  [[nodiscard]] bool uses_yarn() const { return rotary_embedding() == RopeType::kYarn; }
  [[nodiscard]] bool uses_longrope() const { return has_rotary() && !longrope_short_factor.empty(); }
  /// Whether sequences that share a micro-batch give the sums that they give alone: not with dropout, whose
  /// masks depend on the sample, with MTP, whose weights do, and with routing that depends on other tokens.
  [[nodiscard]] bool sums_over_sequences() const {
    return hidden_dropout == 0 && attention_dropout == 0 && mtp_num_layers == 0 &&
           (moe.num_experts == 0 || !moe.routes_tokens_together());
  }
  /// Head size of values.
  [[nodiscard]] std::int64_t value_head_dim() const {
    return latent.enabled ? latent.v_head_dim : kv_channels;
  }
  /// Head dimensions with RoPE. As in Megatron, multi-latent attention uses rotary_percent only with
  /// --rope-type rope.
  [[nodiscard]] std::int64_t rotary_channels() const {
    if (latent.enabled && uses_yarn()) return latent.qk_pos_emb_head_dim;
    const std::int64_t channels = latent.enabled ? latent.qk_pos_emb_head_dim : kv_channels;
    return static_cast<std::int64_t>(static_cast<double>(channels) * rotary_percent) / 2 * 2;
  }
  /// One-based layer number within the encoder, the decoder or the MTP layers. `layer` is the zero-based
  /// global index: encoder layers first, MTP layers last.
  [[nodiscard]] std::int64_t layer_number(std::int64_t layer) const {
    if (layer < encoder_num_layers) return layer + 1;
    return layer < total_layers() ? layer - encoder_num_layers + 1 : layer - total_layers() + 1;
  }
  /// Whether the word embedding is used at both ends of the pipeline: by tied output weights or by MTP.
  [[nodiscard]] bool shares_word_embeddings() const {
    return !untie_embeddings_and_output_weights || mtp_num_layers > 0;
  }
  /// Width of the rows that routed experts read and write (--moe-latent-size).
  [[nodiscard]] std::int64_t expert_width() const {
    return moe.routed_size > 0 ? moe.routed_size : hidden_size;
  }
  /// muP's width multiplier, hidden size / base hidden size; 1 without muP.
  [[nodiscard]] double width_mult() const {
    if (!use_mup || mup_base_hidden_size <= 0) return 1;
    return static_cast<double>(hidden_size) / static_cast<double>(mup_base_hidden_size);
  }
  /// Factors on embeddings and logits.
  [[nodiscard]] double embedding_multiplier() const {
    return embedding_factor * (use_mup ? mup_embedding_mult : 1);
  }
  [[nodiscard]] double logit_multiplier() const {
    if (!use_mup) return logit_factor;
    return logit_factor * (mup_output_mult == 1 ? 1 / width_mult() : mup_output_mult);
  }
  /// Standard deviation of initial weights other than embeddings and the output layer.
  [[nodiscard]] double hidden_init_std() const { return init_method_std / std::sqrt(width_mult()); }
  [[nodiscard]] bool has_qkv_bias() const { return add_bias_linear || add_qkv_bias; }

  friend bool operator==(const Model&, const Model&) = default;
};

}  // namespace colonnade::config
