// Settings of multi-latent attention and of multi-token prediction.
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

constexpr auto kModel = &Run::model;
constexpr auto kLatent = &Model::latent;

void attention(Table& t) {
  t.model_group("multi-latent attention");
  t.add<kModel, kLatent, &LatentAttention::enabled>(
      "--multi-latent-attention",
      "multi-latent attention (MLA): low-rank latents for queries, keys and values; "
      "--qk-layernorm normalizes the latents");
  t.add<kModel, kLatent, &LatentAttention::q_lora_rank>(
       "--q-lora-rank", "rank of the query latent; 0: queries are projected from the hidden state")
      .range(0, 1'000'000'000);
  t.add<kModel, kLatent, &LatentAttention::kv_lora_rank>("--kv-lora-rank", "rank of the key/value latent")
      .range(1, 1'000'000'000);
  t.add<kModel, kLatent, &LatentAttention::qk_head_dim>("--qk-head-dim",
                                                        "query/key head dimensions without RoPE")
      .range(1, 1'000'000'000);
  t.add<kModel, kLatent, &LatentAttention::qk_pos_emb_head_dim>(
       "--qk-pos-emb-head-dim", "query/key head dimensions with RoPE; their keys are shared by all heads")
      .range(2, 1'000'000'000);
  t.add<kModel, kLatent, &LatentAttention::v_head_dim>("--v-head-dim", "value head size")
      .range(1, 1'000'000'000);
}

void multi_token_prediction(Table& t) {
  t.model_group("multi-token prediction");
  t.add<kModel, &Model::mtp_num_layers>(
       "--mtp-num-layers", "multi-token prediction (MTP) layers, one per additional predicted token; 0: none")
      .range(0, 1'000);
  t.add<kModel, &Model::mtp_loss_scaling_factor>("--mtp-loss-scaling-factor", "weight of the mean MTP loss")
      .at_least(0)
      .training_only();
}

}  // namespace

void add_latent(Table& t) {
  attention(t);
  multi_token_prediction(t);
}

}  // namespace colonnade::config
