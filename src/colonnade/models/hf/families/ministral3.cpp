// Ministral 3: Mistral with YaRN and queries that grow with the position.
#include "colonnade/models/hf/families/blocks.h"
#include "colonnade/models/hf/families/decoder.h"
#include "colonnade/models/hf/families/list.h"

namespace colonnade::models::hf {

using nlohmann::json;

namespace {

/// Removes the scale of the queries from the block of positions, of which Transformers reads it.
double take_scaling_beta(const ReadContext& r) {
  double beta = 0;
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    json block = r.keys.object(name);
    if (block.empty()) continue;
    Keys inner(block, std::string(name) + ".", r.faults);
    constexpr double kMost = 1e3;
    beta = inner.real("llama_4_scaling_beta", 0, {.least = 0, .most = kMost});
    block.erase("llama_4_scaling_beta");
    block.erase("max_position_embeddings");  // repeats the file's
    r.keys.replace(name, block);
  }
  return beta;
}

void read_ministral3(const ReadContext& r) {
  const double beta = take_scaling_beta(r);
  const Sizes sizes = read_decoder(r, {131072, 4096, 14336, 34, 32, 8, 262144, 128, 1e-5}, 1e6);
  read_window_everywhere(r.keys, std::nullopt, sizes.layers, r.settings);
  if (beta == 0) return;
  if (r.settings["position_embedding_type"] != "yarn")
    r.keys.fault("rope_parameters", "must be of rope_type yarn with llama_4_scaling_beta",
                 json(r.settings["position_embedding_type"]));
  r.settings["query_scaling_beta"] = text(beta);
}

json write_ministral3(const config::Model& m) {
  json c = decoder_config(m);
  json positions = c["rope_scaling"];
  positions["rope_theta"] = m.rotary_base;
  positions["llama_4_scaling_beta"] = m.query_scaling_beta;
  c.erase("rope_scaling");
  c.erase("rope_theta");
  c.update({{"rope_parameters", positions}, {"sliding_window", sliding_window(m)}});
  return c;
}

}  // namespace

const Family& ministral3() {
  static const Family kFamily = {
      .types = {{"ministral3", {"Ministral3ForCausalLM", "Ministral3Model"}}},
      .has = kLlamaLayers | Features{Feature::kYarn, Feature::kQueryScaling},
      .may_have = {Feature::kGroupedQueries, Feature::kWindow},
      .names = joined({embedding_and_head(), pre_norms(), attention(), gated_mlp()}),
      .read = read_ministral3,
      .write = write_ministral3};
  return kFamily;
}

}  // namespace colonnade::models::hf
