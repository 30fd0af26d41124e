// The settings that decide what is computed: sizes and switches of a transformer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "colonnade/config/latent_attention.h"
#include "colonnade/config/moe.h"

namespace colonnade::config {

enum class PositionEmbedding { kLearnedAbsolute, kRope, kYarn, kRelative, kNone };
enum class RopeType { kRope, kYarn };
enum class Normalization { kLayerNorm, kRmsNorm };
enum class Activation { kGeluErf, kGeluTanh, kSquaredRelu, kSwiglu, kGeglu, kGegluTanh, kQuickGeglu };
enum class SoftmaxType { kVanilla, kOffByOne, kLearnable };
enum class ParamsDtype { kFloat32, kBfloat16, kFloat16 };

/// What a model is: a decoder (GPT), or with encoder_num_layers an encoder and a decoder (T5). After
/// `config::derive` no optional that has a default is empty.
struct Model {
  std::int64_t num_layers = 0;               ///< --num-layers; of the decoder
  std::int64_t encoder_num_layers = 0;       ///< --encoder-num-layers; 0: there is no encoder
  std::int64_t hidden_size = 0;              ///< --hidden-size
  std::int64_t ffn_hidden_size = 0;          ///< --ffn-hidden-size; 0: 4h, with SwiGLU int(4h*2/3/64)*64
  std::int64_t num_attention_heads = 0;      ///< --num-attention-heads
  std::int64_t num_query_groups = 0;         ///< --num-query-groups with --group-query-attention; 0: heads
  std::int64_t kv_channels = 0;              ///< --kv-channels, size of one head; 0: hidden / heads
  std::int64_t vocab_size = 0;               ///< true vocabulary, from --vocab-size or the tokenizer
  std::int64_t max_position_embeddings = 0;  ///< --max-position-embeddings
  std::int64_t make_vocab_size_divisible_by = 128;  ///< --make-vocab-size-divisible-by; layout only

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
  /// --rope-type: rotary embedding of multi-latent attention, whatever position_embedding says; unset: yarn
  std::optional<RopeType> rope_type;
  double rotary_scaling_factor = 1.0;  ///< --rotary-scaling-factor: YaRN's, new context length over old
  double mscale = 1.0;                 ///< --mscale: YaRN's weight of log(factor), above the line
  double mscale_all_dim = 0.0;         ///< --mscale-all-dim: the one below the line
  std::int64_t yarn_original_max_position_embeddings = 4096;  ///< old context length
  double yarn_beta_fast = 32;                                 ///< turns over the old length that are kept
  double yarn_beta_slow = 1;                           ///< turns over the old length that are stretched
  bool yarn_correction_range_round_to_int = true;      ///< the blend begins and ends at whole frequencies
  std::int64_t relative_attention_num_buckets = 32;    ///< --relative-attention-num-buckets
  std::int64_t relative_attention_max_distance = 128;  ///< --relative-attention-max-distance
  std::optional<double> rotary_base_local;  ///< unscaled base of layers with a window; unset: one for all

  Normalization normalization = Normalization::kLayerNorm;  ///< --normalization
  double norm_epsilon = 1e-5;                               ///< --norm-epsilon
  bool apply_layernorm_1p = false;  ///< --apply-layernorm-1p: gamma is kept as gamma - 1
  bool qk_layernorm = false;        ///< --qk-layernorm

  Activation activation = Activation::kGeluErf;       ///< from --swiglu, --squared-relu, --openai-gelu, ...
  bool add_bias_linear = true;                        ///< --disable-bias-linear turns it off
  bool add_qkv_bias = false;                          ///< --add-qkv-bias; also on when add_bias_linear is
  double glu_linear_offset = 0;                       ///< --glu-linear-offset, of --quick-geglu
  std::optional<double> activation_func_clamp_value;  ///< --activation-func-clamp-value, of --quick-geglu
  std::int64_t window_size = 0;  ///< --window-size W,0: each token sees W earlier ones and itself; 0: all
  std::string window_attn_skip_freq;  ///< --window-attn-skip-freq; "": every layer has the window
  SoftmaxType softmax_type = SoftmaxType::kVanilla;  ///< --softmax-type: what else the scores compete with
  double attn_logit_softcapping = 0;                 ///< scores s become c tanh(s / c); 0: left alone
  std::optional<double> query_pre_attn_scalar;       ///< scores are over its root; unset: of the head's size
  bool apply_query_key_layer_scaling = false;        ///< --apply-query-key-layer-scaling, see layer_number()
  bool sandwich_norm = false;     ///< norms of what attention and MLP give, before the residual sum
  bool scale_embeddings = false;  ///< embeddings times sqrt(hidden_size)
  Moe moe;                        ///< experts in place of some MLPs
  LatentAttention latent;         ///< in place of projections from the hidden state to every head
  bool untie_embeddings_and_output_weights = false;  ///< --untie-embeddings-and-output-weights
  std::optional<bool> output_layer_bias;  ///< of the logits; unset: with an encoder and tied tables only
  bool bidirectional = false;             ///< tokens see those behind them too (bert)
  std::int64_t num_tokentypes = 0;        ///< rows of the table of segments (bert); 0: there is none
  bool lm_head_transform = false;         ///< logits are made of norm(gelu(dense(hidden state))) (bert)
  bool bert_binary_head = false;          ///< --bert-no-binary-head turns it off: sentence order (bert)
  bool apply_residual_connection_post_layernorm = false;  ///< the residual is what the norm gives
  bool scale_decoder_outputs = false;  ///< logits are made of hidden states over sqrt(hidden_size)
  double final_logit_softcapping = 0;  ///< logits z become c tanh(z / c); 0: left alone

  std::int64_t mtp_num_layers = 0;       ///< --mtp-num-layers: further tokens that training predicts
  double mtp_loss_scaling_factor = 0.1;  ///< --mtp-loss-scaling-factor, of the mean of their losses

  double hidden_dropout = 0.1;     ///< --hidden-dropout
  double attention_dropout = 0.1;  ///< --attention-dropout
  double init_method_std = 0.02;   ///< --init-method-std; output layers std / sqrt(2 * num_layers)
  std::optional<double> embedding_init_method_std;   ///< --embedding-init-method-std
  ParamsDtype params_dtype = ParamsDtype::kFloat32;  ///< --bf16, --fp16

  [[nodiscard]] bool has_encoder() const { return encoder_num_layers > 0; }
  /// Of encoder and decoder; a number of a layer counts those of the encoder first.
  [[nodiscard]] std::int64_t all_layers() const { return encoder_num_layers + num_layers; }
  [[nodiscard]] bool gated() const {
    return activation == Activation::kSwiglu || activation == Activation::kGeglu ||
           activation == Activation::kGegluTanh || activation == Activation::kQuickGeglu;
  }
  /// Rotary embedding of the heads of self-attention; empty without one. Multi-latent attention always has
  /// one, beside the positions that the embeddings have. Source: Megatron's MLATransformerConfig.rope_type.
  [[nodiscard]] std::optional<RopeType> rotary_embedding() const {
    if (latent.enabled) return rope_type.value_or(RopeType::kYarn);
    if (position_embedding == PositionEmbedding::kRope) return RopeType::kRope;
    if (position_embedding == PositionEmbedding::kYarn) return RopeType::kYarn;
    return std::nullopt;
  }
  [[nodiscard]] bool rotary() const { return rotary_embedding().has_value(); }
  [[nodiscard]] bool yarn() const { return rotary_embedding() == RopeType::kYarn; }
  /// Channels of a head of values.
  [[nodiscard]] std::int64_t value_channels() const {
    return latent.enabled ? latent.v_head_dim : kv_channels;
  }
  /// Channels of a head that have a rotary embedding. Multi-latent attention reads rotary_percent with
  /// --rope-type rope only, as Megatron's.
  [[nodiscard]] std::int64_t rotary_channels() const {
    if (latent.enabled && yarn()) return latent.qk_pos_emb_head_dim;
    const std::int64_t channels = latent.enabled ? latent.qk_pos_emb_head_dim : kv_channels;
    return static_cast<std::int64_t>(static_cast<double>(channels) * rotary_percent) / 2 * 2;
  }
  /// Number of a layer from 1 on, within the encoder, the decoder or the multi-token prediction layers:
  /// `layer` is its global number from 0 on, the encoder's first and those of multi-token prediction last.
  [[nodiscard]] std::int64_t layer_number(std::int64_t layer) const {
    if (layer < encoder_num_layers) return layer + 1;
    return layer < all_layers() ? layer - encoder_num_layers + 1 : layer - all_layers() + 1;
  }
  /// The table of word embeddings is read at both ends of the model.
  [[nodiscard]] bool word_embeddings_shared() const {
    return !untie_embeddings_and_output_weights || mtp_num_layers > 0;
  }
  [[nodiscard]] bool qkv_bias() const { return add_bias_linear || add_qkv_bias; }

  friend bool operator==(const Model&, const Model&) = default;
};

}  // namespace colonnade::config
