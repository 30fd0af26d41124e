// Well-known models whose numbers are published.
#pragma once

#include "colonnade/config/model.h"
#include "colonnade/config/parallel.h"

namespace colonnade::plan::test {

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
  m.params_dtype = config::ParamsDtype::kBfloat16;
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

/// Learned positions, biases, tied embeddings.
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

}  // namespace colonnade::plan::test
