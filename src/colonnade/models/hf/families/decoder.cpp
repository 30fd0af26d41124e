// See decoder.h.
#include "colonnade/models/hf/families/decoder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "colonnade/config/attention.h"
#include "colonnade/config/layer_pattern.h"
#include "colonnade/layout/layer_kind.h"

namespace colonnade::models::hf {

using nlohmann::json;

namespace {

json yarn_scaling(const config::Model& m) {
  json scaling = {{"rope_type", "yarn"},
                  {"factor", m.rotary_scaling_factor},
                  {"beta_fast", m.yarn_beta_fast},
                  {"beta_slow", m.yarn_beta_slow},
                  {"truncate", m.yarn_correction_range_round_to_int},
                  {"original_max_position_embeddings", m.yarn_original_max_position_embeddings}};
  if (m.mscale != 0 && m.mscale_all_dim != 0)
    scaling.update({{"mscale", m.mscale}, {"mscale_all_dim", m.mscale_all_dim}});
  else if (m.mscale != 1 || m.mscale_all_dim != 0)  // Transformers ignores one of them alone
    scaling["attention_factor"] = yarn_attention_factor(m.rotary_scaling_factor, m.mscale, m.mscale_all_dim);
  return scaling;
}

json longrope_scaling(const config::Model& m) {
  json scaling = {{"rope_type", "longrope"},
                  {"short_factor", config::parse_numbers(m.longrope_short_factor).value()},
                  {"long_factor", config::parse_numbers(m.longrope_long_factor).value()},
                  {"original_max_position_embeddings", m.longrope_original_max_position_embeddings}};
  if (m.longrope_attention_factor) scaling["attention_factor"] = *m.longrope_attention_factor;
  return scaling;
}

json rope_scaling(const config::Model& m) {
  const bool from_positions = config::rotary_of(m).from_position_embedding;
  if (m.uses_yarn() && (from_positions || m.rotary_scaling_factor > 1)) return yarn_scaling(m);
  if (!from_positions) return nullptr;
  if (m.uses_longrope()) return longrope_scaling(m);
  if (m.use_rope_scaling)
    return {{"rope_type", "llama3"},
            {"factor", m.rope_scaling_factor},
            {"low_freq_factor", m.rope_low_freq_factor},
            {"high_freq_factor", m.rope_high_freq_factor},
            {"original_max_position_embeddings", m.rope_original_max_position_embeddings}};
  if (m.rotary_seq_len_interpolation_factor != 1.0)
    return {{"rope_type", "linear"}, {"factor", m.rotary_seq_len_interpolation_factor}};
  return nullptr;
}

}  // namespace

Sizes read_decoder(const ReadContext& r, const SizeDefaults& defaults, double theta) {
  return read_decoder(r, defaults, RopeDefaults{.theta = theta});
}

Sizes read_decoder(const ReadContext& r, const SizeDefaults& defaults, RopeDefaults rope) {
  const Sizes sizes = read_body(r, defaults, std::move(rope));
  r.keys.only("hidden_act", {"silu", "swish"});
  r.keys.only("activation", {"swiglu"});  // redundant with hidden_act
  r.settings["activation"] = "swiglu";
  return sizes;
}

Sizes read_body(const ReadContext& r, const SizeDefaults& defaults, RopeDefaults rope) {
  const Sizes sizes = read_sizes(r.keys, defaults, r.settings);
  r.settings["add_bias_linear"] = "false";
  r.settings["add_qkv_bias"] = "false";
  r.settings["qk_layernorm"] = "false";
  rope.max_position_embeddings = sizes.max_positions;
  read_positions(r.keys, rope, r.faults, r.settings);
  return sizes;
}

std::int64_t read_topk(Keys& keys, std::int64_t default_value, bool over_chosen) {
  const std::int64_t topk = keys.integer("num_experts_per_tok", default_value);
  if (over_chosen && topk == 1)
    keys.fault("num_experts_per_tok", "must be at least 2: a single chosen expert always has weight 1",
               json(topk));
  return topk;
}

std::string read_layer_freq(Keys& keys, std::int64_t layers) {
  const std::int64_t step = keys.integer("decoder_sparse_step", 1);
  const json dense = keys.any("mlp_only_layers");
  const bool listed = dense.is_array() &&
                      std::ranges::all_of(dense, [](const json& layer) { return layer.is_number_integer(); });
  if (!dense.is_null() && !listed)
    keys.fault("mlp_only_layers", "must be a list of layers", dense, "correct the file");
  std::set<std::int64_t> without;
  if (listed) without = dense.get<std::set<std::int64_t>>();
  std::vector<int> experts;
  for (std::int64_t i = 0; i < layers; ++i)
    experts.push_back((i + 1) % step == 0 && !without.contains(i) ? 1 : 0);
  if (std::ranges::count(experts, 0) == 0) return "1";
  return fmt::format("[{}]", fmt::join(experts, ","));
}

void read_layers_without_rope(std::int64_t layers, Settings& s) {
  const auto windows = s.find("window_attn_skip_freq");
  if (windows == s.end()) return;  // all layers have one
  const auto windowed = config::expand_skip_freq(windows->second, layers);
  if (!windowed) return;  // a fault of layer_types
  std::vector<int> without;
  for (const bool has_window : *windowed) without.push_back(has_window ? 0 : 1);
  s["no_rope_freq"] = fmt::format("[{}]", fmt::join(without, ","));
}

bool rotates_windowed_layers(const config::Model& m) {
  if (m.window_size == 0) return m.no_rope_freq.empty();
  for (std::int64_t i = 0; i < m.num_layers; ++i)
    if (layout::has_rope(m, i) != (layout::attention_window(m, i) > 0)) return false;
  return true;
}

std::string dense_first(std::int64_t dense, std::int64_t layers) {
  if (dense <= 0) return "1";
  return fmt::format("([0]*{}+[1]*{})", std::min(dense, layers), std::max<std::int64_t>(layers - dense, 0));
}

json decoder_config(const config::Model& m) {
  return {{"hidden_act", "silu"},
          {"hidden_size", m.hidden_size},
          {"intermediate_size", m.ffn_hidden_size},
          {"num_hidden_layers", m.num_layers},
          {"num_attention_heads", m.num_attention_heads},
          {"num_key_value_heads", m.num_query_groups},
          {"head_dim", m.kv_channels},
          {"vocab_size", m.vocab_size},
          {"max_position_embeddings", m.max_position_embeddings},
          {"rms_norm_eps", m.norm_epsilon},
          {"rope_theta", m.rotary_base},
          {"rope_scaling", rope_scaling(m)},
          {"initializer_range", m.init_method_std},
          {"attention_dropout", m.attention_dropout},
          {"tie_word_embeddings", !m.untie_embeddings_and_output_weights}};
}

json layer_types(const config::Model& m) {
  json types = json::array();
  for (std::int64_t i = 0; i < m.num_layers; ++i)
    types.push_back(layout::attention_window(m, i) > 0 ? "sliding_attention" : "full_attention");
  return types;
}

json sliding_window(const config::Model& m) { return m.window_size > 0 ? json(m.window_size + 1) : json(); }

json required_window(const config::Model& m, std::int64_t default_value) {
  return m.window_size > 0 ? sliding_window(m) : json(default_value);
}

json dense_layers(const config::Model& m) {
  json dense = json::array();
  const std::vector<layout::LayerKind> kinds = layout::layer_kinds(m);
  for (std::size_t i = 0; i < kinds.size(); ++i)
    if (!kinds[i].is_moe()) dense.push_back(i);
  return dense;
}

bool has_whole_heads(const config::Model& m) {
  return m.num_attention_heads > 0 && m.hidden_size % m.num_attention_heads == 0;
}

bool has_square_heads(const config::Model& m) {
  return m.kv_channels * m.num_attention_heads == m.hidden_size;
}

}  // namespace colonnade::models::hf
