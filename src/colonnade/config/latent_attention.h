// The settings of multi-latent attention: queries, keys and values are made of narrow vectors.
#pragma once

#include <cstdint>

namespace colonnade::config {

/// Without it (enabled false) nothing else of it counts. A head of queries and keys is qk_head_dim +
/// qk_pos_emb_head_dim wide, which is what Model::kv_channels becomes.
struct LatentAttention {
  bool enabled = false;                   ///< --multi-latent-attention
  std::int64_t q_lora_rank = 0;           ///< --q-lora-rank, width of the queries' vector; 0: none
  std::int64_t kv_lora_rank = 32;         ///< --kv-lora-rank, width of the keys' and values' vector
  std::int64_t qk_head_dim = 128;         ///< --qk-head-dim, channels of a head without positions
  std::int64_t qk_pos_emb_head_dim = 64;  ///< --qk-pos-emb-head-dim, channels of a head that turn
  std::int64_t v_head_dim = 128;          ///< --v-head-dim, of values

  friend bool operator==(const LatentAttention&, const LatentAttention&) = default;
};

}  // namespace colonnade::config
