// Latent attention and experts of DeepSeek-V2 and later, and of families with the same keys. Private to
// models/hf.
#pragma once

#include "colonnade/models/hf/families/decoder.h"

namespace colonnade::models::hf {

/// Reads a decoder with latent attention. Its norms have epsilon 1e-6 whatever config.json says.
Sizes read_latent_decoder(const ReadContext& r, SizeDefaults defaults);

/// Defaults of the keys of experts.
struct ExpertDefaults {
  std::int64_t experts, per_token, width, shared, dense_layers;
  double scale = 1;
};
/// Reads experts after dense layers, with shared experts, but not the choice of experts.
void read_experts_after_dense(const ReadContext& r, const Sizes& sizes, const ExpertDefaults& defaults);

/// Reads a choice by sigmoid scores and a bias, in groups ranked by their top two scores; weights are
/// normalized.
void read_sigmoid_choice(const ReadContext& r, std::int64_t default_groups, std::int64_t default_chosen);

nlohmann::json latent_decoder_config(const config::Model& model);
/// Keys of read_experts_after_dense() and of expert groups.
nlohmann::json experts_config(const config::Model& model);

/// Whether rotary positions and norms are those that read_latent_decoder() can yield.
bool has_latent_decoder(const config::Model& model);
/// Whether experts are in the last layers and shared experts have the width of several.
bool has_experts_after_dense(const config::Model& model);
/// Whether expert groups are ranked by the sum of their `best` top scores.
bool ranks_groups_by(const config::Moe& moe, std::int64_t best);

}  // namespace colonnade::models::hf
