// Settings of multi-latent attention (MLA): queries, keys and values are up-projected from low-rank latents.
#pragma once

#include <cstdint>

namespace colonnade::config {

/// Ignored unless `enabled`. The head size of queries and keys is qk_head_dim + qk_pos_emb_head_dim; derive()
/// sets Model::kv_channels to it.
struct LatentAttention {
  bool enabled = false;                   ///< --multi-latent-attention
  std::int64_t q_lora_rank = 0;           ///< --q-lora-rank, rank of the query latent; 0: no latent
  std::int64_t kv_lora_rank = 32;         ///< --kv-lora-rank, rank of the key/value latent
  std::int64_t qk_head_dim = 128;         ///< --qk-head-dim, head dimensions without RoPE
  std::int64_t qk_pos_emb_head_dim = 64;  ///< --qk-pos-emb-head-dim, head dimensions with RoPE
  std::int64_t v_head_dim = 128;          ///< --v-head-dim, value head size

  friend bool operator==(const LatentAttention&, const LatentAttention&) = default;
};

}  // namespace colonnade::config
