// Well-known models with published parameter counts.
#pragma once

#include "colonnade/config/model.h"
#include "colonnade/config/parallel.h"

namespace colonnade::test {

inline config::Model llama3_8b() {
  config::Model m;
  m.num_layers = 32;
  m.hidden_size = 4096;
  m.ffn_hidden_size = 14336;
  m.num_attention_heads = 32;
  m.num_query_groups = 8;
  m.kv_channels = 128;
  m.vocab_size = 128256;
  m.max_position_embeddings = 8192;
  m.position_embedding = config::PositionEmbedding::kRope;
  m.normalization = config::Normalization::kRmsNorm;
  m.activation = config::Activation::kSwiglu;
  m.add_bias_linear = false;
  m.untie_embeddings_and_output_weights = true;
  m.params_dtype = config::Dtype::kBfloat16;
  m.hidden_dropout = 0;
  m.attention_dropout = 0;
  return m;
}

inline config::Model llama3_70b() {
  config::Model m = llama3_8b();
  m.num_layers = 80;
  m.hidden_size = 8192;
  m.ffn_hidden_size = 28672;
  m.num_attention_heads = 64;
  return m;
}

inline config::Model gpt_oss(std::int64_t layers, std::int64_t experts) {
  config::Model m = llama3_8b();
  m.num_layers = layers;
  m.hidden_size = m.ffn_hidden_size = m.moe.ffn_hidden_size = 2880;
  m.num_attention_heads = 64;
  m.kv_channels = 64;
  m.vocab_size = 201088;
  m.add_bias_linear = true;
  m.activation = config::Activation::kQuickGeglu;
  m.softmax_type = config::SoftmaxType::kLearnable;
  m.window_size = 127;
  m.window_attn_skip_freq = "2";
  m.moe.num_experts = experts;
  m.moe.router_topk = 4;
  return m;
}

/// Gemma 3's text models.
inline config::Model gemma3(std::int64_t layers, std::int64_t hidden, std::int64_t ffn, std::int64_t heads,
                            std::int64_t groups) {
  config::Model m = llama3_8b();
  m.num_layers = layers;
  m.hidden_size = hidden;
  m.ffn_hidden_size = ffn;
  m.num_attention_heads = heads;
  m.num_query_groups = groups;
  m.kv_channels = 256;
  m.vocab_size = 262144;
  m.activation = config::Activation::kGegluTanh;
  m.apply_layernorm_1p = m.qk_layernorm = m.sandwich_norm = true;
  m.untie_embeddings_and_output_weights = false;
  return m;
}

/// Without its MTP layer.
inline config::Model deepseek_v3() {
  config::Model m = llama3_8b();
  m.num_layers = 61;
  m.hidden_size = 7168;
  m.ffn_hidden_size = 18432;
  m.num_attention_heads = m.num_query_groups = 128;
  m.latent = {.enabled = true,
              .q_lora_rank = 1536,
              .kv_lora_rank = 512,
              .qk_head_dim = 128,
              .qk_pos_emb_head_dim = 64,
              .v_head_dim = 128};
  m.kv_channels = 192;
  m.qk_layernorm = true;
  m.vocab_size = 129280;
  m.moe.num_experts = 256;
  m.moe.layer_freq = "([0]*3+[1]*58)";
  m.moe.ffn_hidden_size = m.moe.shared_expert_intermediate_size = 2048;
  m.moe.router_topk = 8;
  m.moe.router_score_function = config::RouterScore::kSigmoid;
  m.moe.router_enable_expert_bias = true;
  m.moe.router_num_groups = 8;
  m.moe.router_group_topk = 4;
  m.moe.router_topk_scaling_factor = 2.5;
  return m;
}

/// GPT with learned positions, biases and tied embeddings.
inline config::Model gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads,
                         std::int64_t positions) {
  config::Model m;
  m.num_layers = layers;
  m.hidden_size = hidden;
  m.ffn_hidden_size = 4 * hidden;
  m.num_attention_heads = heads;
  m.num_query_groups = heads;
  m.kv_channels = hidden / heads;
  m.vocab_size = 50257;
  m.max_position_embeddings = positions;
  return m;
}
inline config::Model gpt2_124m() { return gpt(12, 768, 12, 1024); }
inline config::Model gpt3_175b() { return gpt(96, 12288, 96, 2048); }

inline config::Parallel layout(int world, int tp, int pp) {
  config::Parallel p;
  p.world_size = world;
  p.tensor_model_parallel_size = tp;
  p.pipeline_model_parallel_size = pp;
  return p;
}

}  // namespace colonnade::test
