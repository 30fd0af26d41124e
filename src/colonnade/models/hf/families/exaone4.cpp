// EXAONE 4: norms on the outputs of attention and MLP, QK norms, sliding windows in some layers, and no
// rotary embedding in the others then.
#include <fmt/ranges.h>

#include <algorithm>

#include "colonnade/layout/layer_kind.h"
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {

using nlohmann::json;

namespace {

/// Layers between full ones: published files have a pattern such as LLLG.
std::int64_t window_pattern(Keys& keys) {
  const json given = keys.any("sliding_window_pattern");
  if (given.is_string()) return static_cast<std::int64_t>(given.get<std::string>().size());
  constexpr std::int64_t kDefault = 4;
  return keys.integer_or_null("sliding_window_pattern", kDefault, 0).value_or(kDefault);
}

void read_exaone4(const ReadContext& r) {
  auto& [type, keys, faults, s, tensors] = r;
  const Sizes sizes = read_decoder(r, {102400, 4096, 16384, 32, 32, 32, 2048, {}, 1e-5}, 1e4);
  s["input_norms"] = "false";
  s["sandwich_norm"] = "true";
  s["qk_layernorm"] = "true";
  const std::int64_t pattern = std::max<std::int64_t>(window_pattern(keys), 1);
  if (keys.has("sliding_window") && keys.any("sliding_window").is_null())
    return require_layer_types(keys, "full_attention", sizes.layers);
  if (read_windows(keys, pattern, 4096, sizes.layers, s)) read_layers_without_rope(sizes.layers, s);
}

json write_exaone4(const config::Model& m) {
  json c = decoder_config(m);
  c.update({{"sliding_window", sliding_window(m)}, {"layer_types", layer_types(m)}});
  c["sliding_window_pattern"] = m.window_size > 0 ? json(4) : json();
  return c;
}

}  // namespace

const Family& exaone4() {
  static const Family kFamily = {
      .types = {{"exaone4", {"Exaone4ForCausalLM", "Exaone4Model"}}},
      .has = kLlamaLayers | Features{Feature::kNoInputNorms, Feature::kSandwichNorm, Feature::kQkNorm},
      .may_have = kRopeScalings | Features{Feature::kGroupedQueries, Feature::kWindow, Feature::kSomeWindows,
                                           Feature::kLayersWithoutRope},
      .also = rotates_windowed_layers,
      .names = joined({embedding_and_head(), output_norms(), attention(), qk_norms(), gated_mlp()}),
      .read = read_exaone4,
      .write = write_exaone4};
  return kFamily;
}

}  // namespace colonnade::models::hf
