// SmolLM3: Llama with layers without rotary embedding.
#include <fmt/ranges.h>

#include <algorithm>

#include "colonnade/layout/layer_kind.h"
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {

using nlohmann::json;

namespace {

/// no_rope_layers has 1 for layers with a rotary embedding.
void read_rotating_layers(const ReadContext& r, std::int64_t layers) {
  const std::int64_t interval = r.keys.integer("no_rope_layer_interval", 4);
  const json listed = r.keys.any("no_rope_layers");
  if (!listed.is_null() && (!listed.is_array() || static_cast<std::int64_t>(listed.size()) != layers))
    return r.keys.fault("no_rope_layers",
                        fmt::format("must be a list with one entry for each of {} layers", layers), listed,
                        "correct the file");
  std::vector<int> without;
  for (std::int64_t i = 0; i < layers; ++i)
    without.push_back(listed.is_null() ? (i + 1) % interval == 0
                                       : listed[static_cast<std::size_t>(i)] == json(0));
  if (std::ranges::count(without, 1) > 0)
    r.settings["no_rope_freq"] = fmt::format("[{}]", fmt::join(without, ","));
}

void read_smollm3(const ReadContext& r) {
  const Sizes sizes = read_decoder(r, {128256, 2048, 11008, 36, 16, 4, 32768, {}, 1e-6, true}, 2e6);
  require_layer_types(r.keys, "full_attention", sizes.layers);
  r.keys.only("use_sliding_window", {false});
  static constexpr std::string_view kIgnored[] = {"sliding_window", "max_window_layers"};
  r.keys.ignore(kIgnored);
  read_rotating_layers(r, sizes.layers);
}

json write_smollm3(const config::Model& m) {
  json c = decoder_config(m);
  json rotating = json::array();
  for (std::int64_t i = 0; i < m.num_layers; ++i) rotating.push_back(layout::has_rope(m, i) ? 1 : 0);
  c.update({{"no_rope_layers", rotating},
            {"attention_bias", false},
            {"mlp_bias", false},
            {"use_sliding_window", false}});
  c.erase("head_dim");  // the class has none
  return c;
}

}  // namespace

const Family& smollm3() {
  static const Family kFamily = {
      .types = {{"smollm3", {"SmolLM3ForCausalLM", "SmolLM3Model"}}},
      .has = kLlamaLayers | Features{Feature::kLayersWithoutRope},
      .may_have = kRopeScalings | Features{Feature::kGroupedQueries},
      .also = has_square_heads,
      .names = joined({embedding_and_head(), pre_norms(), attention(), gated_mlp()}),
      .read = read_smollm3,
      .write = write_smollm3};
  return kFamily;
}

}  // namespace colonnade::models::hf
