// Settings of multi-latent attention and of multi-token prediction.
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

constexpr auto kModel = &Run::model;
constexpr auto kLatent = &Model::latent;

void attention(Table& t) {
  t.group("multi-latent attention");
  t.add<kModel, kLatent, &LatentAttention::enabled>(
      "--multi-latent-attention",
      "queries, keys and values are made of narrow vectors of each token, which --qk-layernorm norms");
  t.add<kModel, kLatent, &LatentAttention::q_lora_rank>(
       "--q-lora-rank", "width of the vector that queries are made of; 0: made of the hidden state")
      .range(0, 1'000'000'000);
  t.add<kModel, kLatent, &LatentAttention::kv_lora_rank>(
       "--kv-lora-rank", "width of the vector that keys and values are made of")
      .range(1, 1'000'000'000);
  t.add<kModel, kLatent, &LatentAttention::qk_head_dim>(
       "--qk-head-dim", "channels of a head of queries and keys without position")
      .range(1, 1'000'000'000);
  t.add<kModel, kLatent, &LatentAttention::qk_pos_emb_head_dim>(
       "--qk-pos-emb-head-dim",
       "further channels, which turn with the position; those of keys are one for all heads")
      .range(2, 1'000'000'000);
  t.add<kModel, kLatent, &LatentAttention::v_head_dim>("--v-head-dim", "channels of a head of values")
      .range(1, 1'000'000'000);
}

void prediction(Table& t) {
  t.group("multi-token prediction");
  t.add<kModel, &Model::mtp_num_layers>("--mtp-num-layers",
                                        "further tokens that training predicts, each with a layer; 0: none")
      .range(0, 1'000);
  t.add<kModel, &Model::mtp_loss_scaling_factor>(
       "--mtp-loss-scaling-factor", "weight of the mean of their losses beside that of the next token")
      .at_least(0);
}

}  // namespace

void add_latent(Table& t) {
  attention(t);
  prediction(t);
}

}  // namespace colonnade::config
