// See known_keys.h.
#include "colonnade/models/hf/known_keys.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace colonnade::models::hf {

using nlohmann::json;

namespace {

/// Attributes of every configuration class and keys that tools add.
constexpr std::string_view kBookkeeping[] = {
    // Author and producing program.
    "_name_or_path", "name_or_path", "name", "language", "_commit_hash", "transformers_version", "model_type",
    "auto_map", "dtype", "torch_dtype", "tokenizer_class", "tokenizer_model_max_length",
    "tokenizer_padding_side", "use_return_dict", "finetuning_task", "task_specific_params", "unsloth_version",
    "unsloth_fixed", "unsloth_processed", "is_llama_config", "transformers.js_config",
    "keys_to_ignore_at_inference", "model_max_length", "max_sequence_length", "_num_labels", "num_labels",
    "id2label", "label2id", "problem_type", "classifier_dropout", "classifier_bias", "classifier_activation",
    // Inference and choice of implementation.
    "use_cache", "return_dict", "output_hidden_states", "output_attentions", "output_router_logits",
    "output_past", "torchscript", "use_bfloat16", "tf_legacy_loss", "chunk_size_feed_forward",
    "gradient_checkpointing", "is_decoder", "pretraining_tp", "attn_implementation", "_attn_implementation",
    "_attn_implementation_internal", "_attn_implementation_autoset", "_experts_implementation",
    "_experts_implementation_internal", "_moe_implementation", "_flash_attn_2_enabled", "use_flash_attn",
    "use_flash_attention", "fused_bias_dropout", "reorder_and_upcast_attn", "cache_implementation", "ep_size",
    "tie_last_hidden_states", "use_logits_to_keep",
    // Token ids.
    "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id", "mask_token_id",
    "unk_token_id", "decoder_start_token_id", "eos_token_ids",
    // Generation.
    "max_length", "max_new_tokens", "min_length", "do_sample", "early_stopping", "num_beams",
    "num_beam_groups", "diversity_penalty", "temperature", "top_k", "top_p", "min_p", "typical_p",
    "epsilon_cutoff", "eta_cutoff", "repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "bad_words_ids", "num_return_sequences", "output_scores", "output_logits",
    "return_dict_in_generate", "forced_bos_token_id", "forced_eos_token_id", "remove_invalid_values",
    "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens", "prefix", "max_time",
    "guidance_scale", "renormalize_logits", "constraints", "force_words_ids",
    // Training losses and router noise.
    "router_aux_loss_coef", "router_jitter_noise", "router_z_loss_coef", "aux_loss_alpha", "seq_aux",
    // Heads for other tasks.
    "summary_type", "summary_use_proj", "summary_activation", "summary_proj_to_labels",
    "summary_first_dropout", "pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers",
    "pooler_size_per_head", "pooler_type", "directionality"};

/// Switches and scales of other models with the values at which they have no effect.
constexpr Neutral kNeutral[] = {{"is_encoder_decoder", "false"},
                                {"add_cross_attention", "false"},
                                {"pruned_heads", "{}"},
                                {"tie_encoder_decoder", "false"},
                                {"tie_weights", "true"},
                                {"per_layer_config", "{}"},
                                {"attention_bias", "false"},
                                {"mlp_bias", "false"},
                                {"use_bias", "false"},
                                {"bias", "false"},
                                {"no_bias", "true"},
                                {"qkv_bias", "false"},
                                {"lm_head_bias", "false"},
                                {"use_qk_norm", "false"},
                                {"qk_norm", "false"},
                                {"qk_layernorm", "false"},
                                {"use_sliding_window", "false"},
                                {"use_mrope", "false"},
                                {"partial_rotary_factor", "1"},
                                {"rotary_pct", "1"},
                                {"rope_interleave", "false"},
                                {"rope_interleaved", "false"},
                                {"alibi", "false"},
                                {"use_alibi", "false"},
                                {"is_causal", "true"},
                                {"causal", "true"},
                                {"use_bidirectional_attention", "false"},
                                {"logit_scale", "1"},
                                {"logits_scaling", "1"},
                                {"residual_multiplier", "1"},
                                {"embedding_multiplier", "1"},
                                {"scale_embedding", "false"},
                                {"parallel_residual", "false"},
                                {"use_parallel_residual", "false"},
                                {"num_nextn_predict_layers", "0"},
                                {"shared_expert_intermediate_size", "0"},
                                {"n_shared_experts", "0"},
                                {"num_shared_experts", "0"},
                                {"first_k_dense_replace", "0"},
                                {"resid_pdrop", "0"},
                                {"embd_pdrop", "0"},
                                {"attn_pdrop", "0"},
                                {"hidden_dropout", "0"},
                                {"residual_dropout", "0"},
                                {"embedding_dropout", "0"},
                                {"mlp_dropout", "0"},
                                {"hidden_dropout_prob", "0"}};

}  // namespace

void ignore_neutral_keys(Keys& keys) {
  keys.ignore(kBookkeeping);
  keys.only(kNeutral);
}

void require_architecture(Keys& keys, const ModelType& type) {
  const json given = keys.any("architectures");
  if (type.classes.empty() || given.is_null() || (given.is_array() && given.empty())) return;
  for (const json& name : given)
    if (name.is_string() && std::ranges::find(type.classes, name.get<std::string>()) != type.classes.end())
      return;
  keys.fault("architectures", fmt::format("must be {} with model_type {}", type.classes[0], type.name),
             given.is_array() ? given[0] : given);
}

}  // namespace colonnade::models::hf
