// C++ part of tests/models/configs_like_transformers.py: writes config.json of every family for the real
// Transformers and reads back what it saved. Skipped without COLONNADE_CONFIG_EXCHANGE.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "colonnade/config/stacks.h"
#include "models/names_support.h"
#include "support/vectors.h"

namespace colonnade::models::hf {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)
using nlohmann::json;
namespace fs = std::filesystem;

class ConfigExchange : public testing::Test {
 protected:
  void SetUp() override {
    const char* folder = std::getenv("COLONNADE_CONFIG_EXCHANGE");
    if (folder == nullptr) GTEST_SKIP() << "run by configs_like_transformers.py";
    folder_ = folder;
  }
  void write(const std::string& name, const json& given) const {
    const fs::path folder = folder_ / name;
    fs::create_directories(folder);
    std::ofstream(folder / "given.json") << given.dump(2);
    const json config = config_of(run_from(given).model);
    EXPECT_TRUE(config.is_object()) << name << " has a class";
    std::ofstream(folder / "config.json") << config.dump(2);
  }
  fs::path folder_;
};

TEST_F(ConfigExchange, WritesEveryFamily) {
  for (const char* folder : {"llama", "llama_plain", "mistral", "qwen2", "qwen3", "mixtral", "gpt2",
                             "qwen3_moe", "gpt_oss", "gemma2", "gemma3_text", "deepseek_v3", "t5", "bert"})
    write(folder, config_in(folder));
  int number = 0;
  const std::string published = colonnade::test::vectors() + "/config_json/published.json";
  for (const json& model : json::parse(read_file(published)))
    write("published_" + std::to_string(++number), model.at("config"));
  json plain = config_in("gpt_oss");
  plain["rope_scaling"] = {{"rope_type", "default"}};
  write("gpt_oss_plain", plain);
  for (const std::string folder : {"gemma2", "gemma3_text", "gpt_oss"}) {
    json full = config_in(folder);
    full["layer_types"] = json::array({"full_attention", "full_attention"});
    write(folder + "_without_windows", full);
  }
  json uneven = config_in("mistral");
  uneven.update({{"hidden_size", 66}, {"sliding_window", nullptr}});
  write("mistral_uneven", uneven);
  json binary = config_in("bert");
  binary["architectures"] = {"BertForPreTraining"};
  write("bert_binary", binary);
  json apart = config_in("t5");
  apart["tie_word_embeddings"] = false;
  write("t5_apart", apart);
  json linear = config_in("gemma3_text");
  linear["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  write("gemma3_linear", linear);
}

TEST_F(ConfigExchange, ReadsWhatTransformersMadeOfThem) {
  int compared = 0;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    const auto read = [&](const char* file) {
      return json::parse(read_file((entry.path() / file).string()));
    };
    const config::Model given = run_from(read("given.json")).model;
    for (const char* file : {"given_saved.json", "config_saved.json"}) {
      if (!fs::exists(entry.path() / file)) continue;  // of a class that Transformers does not have
      config::Model theirs = run_from(read(file)).model;
      // T5Config always saves true; its checkpoints' tensors show whether the output layer is tied.
      if (config::has_several_stacks(given))
        theirs.untie_embeddings_and_output_weights = given.untie_embeddings_and_output_weights;
      EXPECT_TRUE(given == theirs) << entry.path() << ": " << file;
      ++compared;
    }
  }
  EXPECT_GT(compared, 80);
}

}  // namespace
}  // namespace colonnade::models::hf
