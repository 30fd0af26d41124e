// Name tables: every parameter of a family has its tensors, and config.json survives the round trip.
#include "colonnade/models/gpt/hf_names.h"

#include <gtest/gtest.h>

#include <set>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/config/derive.h"
#include "colonnade/config/parse.h"
#include "colonnade/models/gpt/hf_config.h"
#include "colonnade/plan/params/gpt.h"

namespace colonnade::models::gpt {
namespace {

config::Run run_of(const std::string& folder) {
  const std::string file = std::string(COLONNADE_VECTORS) + "/hf/" + folder + "/config.json";
  config::Run run;
  config::fill(run, settings_of(nlohmann::json::parse(read_file(file)), file), file);
  config::derive(run);
  return run;
}

std::set<std::string> names_of(const config::Run& run) {
  std::set<std::string> names;
  for (const auto& spec : plan::gpt_params(run.model, run.parallel))
    for (const auto& tensor : hf_tensors(spec, hf_family(run.model))) names.insert(tensor.name);
  return names;
}

TEST(HfNames, AreThoseOfTheLlamaCheckpoint) {
  const auto run = run_of("llama");
  ASSERT_EQ(hf_family(run.model), HfFamily::kLlama);
  const auto names = names_of(run);
  EXPECT_EQ(names.size(), 2U * 9 + 3);
  EXPECT_TRUE(names.contains("model.layers.1.self_attn.k_proj.weight"));
  EXPECT_TRUE(names.contains("lm_head.weight"));
}

TEST(HfNames, AreThoseOfTheGpt2Checkpoint) {
  const auto run = run_of("gpt2");
  ASSERT_EQ(hf_family(run.model), HfFamily::kGpt2);
  const auto names = names_of(run);
  EXPECT_EQ(names.size(), 2U * 12 + 4);
  EXPECT_TRUE(names.contains("transformer.h.0.attn.c_attn.bias"));
  EXPECT_FALSE(names.contains("lm_head.weight"));
}

TEST(HfNames, AGpt2WithItsOwnOutputLayerHasALmHead) {
  auto config = hf_config(run_of("gpt2").model);
  EXPECT_TRUE(config.at("tie_word_embeddings"));
  config["tie_word_embeddings"] = false;
  config::Run run;
  config::fill(run, settings_of(config, "test"), "test");
  config::derive(run);
  ASSERT_EQ(hf_family(run.model), HfFamily::kGpt2);
  EXPECT_TRUE(names_of(run).contains("lm_head.weight"));
  EXPECT_FALSE(hf_config(run.model).at("tie_word_embeddings"));
}

TEST(HfNames, LeftOversAreFoundExceptKnownBuffers) {
  const auto run = run_of("gpt2");
  const auto known = names_of(run);
  std::vector<std::string> names(known.begin(), known.end());
  for (const char* buffer :
       {"transformer.h.0.attn.bias", "transformer.h.1.attn.masked_bias", "lm_head.weight"})
    names.emplace_back(buffer);
  EXPECT_TRUE(left_over(run.model, names).empty());
  names.emplace_back("transformer.h.2.ln_1.weight");  // the model has two layers
  EXPECT_EQ(left_over(run.model, names), (std::vector<std::string>{"transformer.h.2.ln_1.weight"}));
  EXPECT_EQ(left_over(run_of("llama").model, {"model.layers.0.self_attn.q_proj.bias"}).size(), 1U);
}

TEST(HfNames, OfModelsWithoutAFamilyAreOurs) {
  auto run = run_of("llama");
  run.model.qk_layernorm = true;
  EXPECT_FALSE(hf_family(run.model));
  EXPECT_TRUE(names_of(run).contains("decoder.layers.0.self_attention.q_layernorm.weight"));
  run = run_of("llama_plain");
  run.model.rotary_seq_len_interpolation_factor = 4;
  EXPECT_TRUE(hf_family(run.model));
  run.model.use_rope_scaling = true;  // config.json has room for one scaling
  EXPECT_FALSE(hf_family(run.model));
}

TEST(HfConfig, SurvivesTheRoundTrip) {
  for (const char* folder : {"llama", "gpt2", "mistral"}) {
    const auto run = run_of(folder);
    config::Run again;
    config::fill(again, settings_of(hf_config(run.model), "test"), "test");
    config::derive(again);
    EXPECT_EQ(run.model, again.model) << folder;
  }
}

TEST(HfConfig, OfAnotherArchitectureIsRefusedByName) {
  try {
    settings_of({{"model_type", "mamba"}}, "x/config.json");
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("got mamba"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace colonnade::models::gpt
