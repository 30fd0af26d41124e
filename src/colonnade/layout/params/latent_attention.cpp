// See latent_attention.h.
#include "colonnade/layout/params/latent_attention.h"

#include <utility>

#include "colonnade/layout/params/builder.h"

namespace colonnade::layout {

LatentAttentionParams latent_attention_params(const ParamBuilder& build, const std::string& layer) {
  const config::Model& m = build.model();
  const config::LatentAttention& latent = m.latent;
  const std::int64_t n = m.num_attention_heads, q = latent.q_lora_rank;
  const std::int64_t query_size = latent.qk_head_dim + latent.qk_pos_emb_head_dim;
  const std::int64_t key_value_size = latent.qk_head_dim + latent.v_head_dim;
  const std::string name = layer + ".self_attention.";
  const std::vector<DimSegment> queries{{.size = n * query_size, .unit = query_size}};
  LatentAttentionParams p{
      .q_down = std::nullopt,
      .q_norm = std::nullopt,
      .q_up = q > 0 ? build.column(name + "linear_q_up_proj", queries, false, q)
                    : build.column(name + "linear_q_proj", queries, false),
      .kv_down = build.replicated(name + "linear_kv_down_proj.weight",
                                  latent.kv_lora_rank + latent.qk_pos_emb_head_dim),
      .kv_norm = std::nullopt,
      .kv_up =
          build.column(name + "linear_kv_up_proj", {{.size = n * key_value_size, .unit = key_value_size}},
                       false, latent.kv_lora_rank),
      .proj = build.row(name + "linear_proj", {.size = n * latent.v_head_dim, .unit = latent.v_head_dim}),
  };
  if (q > 0) p.q_down = build.replicated(name + "linear_q_down_proj.weight", q);
  if (!m.qk_layernorm) return p;
  if (q > 0) p.q_norm = build.norm(name + "q_layernorm", q);
  p.kv_norm = build.norm(name + "kv_layernorm", latent.kv_lora_rank);
  return p;
}

void add_qk_clip_scales(const LatentAttentionParams& p, const config::LatentAttention& latent,
                        const QkClip& clip, const std::vector<double>& max_scores, RowScales& scales) {
  std::vector<double> queries, keys_values;
  bool clips = false;
  const auto append = [](std::vector<double>& rows, std::int64_t count, double factor) {
    rows.insert(rows.end(), static_cast<std::size_t>(count), factor);
  };
  for (const double score : max_scores) {
    const double scale = clip.scale(score);
    clips = clips || scale < 1;
    append(queries, latent.qk_head_dim, clip.of_queries(scale));
    append(queries, latent.qk_pos_emb_head_dim, scale);
    append(keys_values, latent.qk_head_dim, clip.of_keys(scale));
    append(keys_values, latent.v_head_dim, 1);
  }
  if (!clips) return;
  scales[p.q_up.weight.name] = std::move(queries);
  scales[p.kv_up.weight.name] = std::move(keys_values);
}

}  // namespace colonnade::layout
