// Recorded checkpoints with name variants give the same tensors; duplicated tables.
#include "colonnade/convert/hugging_face.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <functional>
#include <map>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/checkpoint/safetensors.h"
#include "support/vectors.h"

namespace colonnade::convert {
namespace {

namespace fs = std::filesystem;
using at::Tensor;
using checkpoint::CheckpointReader;
using Tensors = std::map<std::string, Tensor>;

class HuggingFaceNames : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "colonnade_spelling_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(folder_); }

  static fs::path recorded(const std::string& model) { return fs::path(test::vectors()) / "hf" / model; }
  static Tensors tensors_of(const CheckpointReader& source) {
    Tensors tensors;
    for (const std::string& name : source.names()) tensors[name] = source.read(name);
    return tensors;
  }
  static Tensors recorded_tensors(const std::string& model) {
    return tensors_of(CheckpointReader::open_hugging_face(recorded(model)));
  }

  /// The recorded checkpoint of `model` with other tensors.
  CheckpointReader open(const std::string& model, const Tensors& tensors) const {
    fs::copy_file(recorded(model) / "config.json", folder_ / "config.json",
                  fs::copy_options::overwrite_existing);
    checkpoint::write_safetensors(folder_ / "model.safetensors", tensors);
    return open_hugging_face(folder_);
  }
  /// Checks that applying `spell` to every stored name gives the recorded tensors.
  void expect_same(const std::string& model,
                   const std::function<std::string(const std::string&)>& spell) const {
    const Tensors expected = recorded_tensors(model);
    Tensors stored;
    for (const auto& [name, tensor] : expected) stored[spell(name)] = tensor;
    expect_equal(tensors_of(open(model, stored)), expected);
  }
  static void expect_equal(const Tensors& got, const Tensors& expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (const auto& [name, tensor] : expected) {
      ASSERT_TRUE(got.contains(name)) << name;
      EXPECT_TRUE(at::equal(got.at(name), tensor)) << name;
    }
  }

  fs::path folder_;
};

std::string replaced(std::string name, const std::string& from, const std::string& to) {
  const auto at = name.find(from);
  return at == std::string::npos ? name : name.replace(at, from.size(), to);
}

TEST_F(HuggingFaceNames, AreNormalizedFromEveryVariant) {
  const auto without_prefix = [](const std::string& prefix) {
    return [prefix](const std::string& name) {
      return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
    };
  };
  const auto with_prefix = [](const std::string& prefix) {
    return [prefix](const std::string& name) { return prefix + name; };
  };
  expect_same("llama", [](const std::string& name) { return name; });
  expect_same("llama", without_prefix("model."));
  expect_same("gemma3_text", with_prefix("language_model."));
  expect_same("qwen3",
              [](const std::string& name) { return replaced(name, "model.", "model.language_model."); });
  expect_same("gpt2", without_prefix("transformer."));
  expect_same("t5", with_prefix("module."));
  expect_same("bert", without_prefix("bert."));
  expect_same("bert", [](const std::string& name) {
    return replaced(replaced(name, "LayerNorm.weight", "LayerNorm.gamma"), "LayerNorm.bias",
                    "LayerNorm.beta");
  });
  expect_same("mixtral", [](const std::string& name) { return replaced(name, "block_sparse_moe", "mlp"); });
  expect_same("gpt_oss", with_prefix("_orig_mod."));
}

/// Transformers 5 keeps the experts of a layer as [experts, 2 * f, h] and [experts, h, f].
TEST_F(HuggingFaceNames, SplitFusedExperts) {
  for (const auto& [model, experts, gate, up, down] :
       {std::tuple{"qwen3_moe", "mlp.experts.", "gate_proj", "up_proj", "down_proj"},
        std::tuple{"deepseek_v3", "mlp.experts.", "gate_proj", "up_proj", "down_proj"},
        std::tuple{"mixtral", "block_sparse_moe.experts.", "w1", "w3", "w2"}}) {
    SCOPED_TRACE(model);
    const Tensors expected = recorded_tensors(model);
    Tensors stored;
    for (const auto& [name, tensor] : expected) {
      const auto at = name.find(experts);
      if (at == std::string::npos) {
        stored[name] = tensor;
        continue;
      }
      const std::string layer = name.substr(0, at + std::string(experts).size());
      std::vector<Tensor> both, lower;
      for (int e = 0; expected.contains(layer + std::to_string(e) + "." + gate + ".weight"); ++e) {
        const std::string front = layer + std::to_string(e) + ".";
        both.push_back(at::cat({expected.at(front + gate + ".weight"), expected.at(front + up + ".weight")}));
        lower.push_back(expected.at(front + down + ".weight"));
      }
      stored[layer + "gate_up_proj"] = at::stack(both);
      stored[layer + "down_proj"] = at::stack(lower);
    }
    ASSERT_LT(stored.size(), expected.size());
    expect_equal(tensors_of(open(model, stored)), expected);
  }
}

TEST_F(HuggingFaceNames, EmbeddingsMayBeStoredUnderATiedName) {
  Tensors gemma = recorded_tensors("gemma2");
  const Tensor table = gemma.extract("model.embed_tokens.weight").mapped();
  gemma["lm_head.weight"] = table;
  EXPECT_TRUE(at::equal(open("gemma2", gemma).read("model.embed_tokens.weight"), table));
  Tensors t5 = recorded_tensors("t5");
  t5["decoder.embed_tokens.weight"] = t5.extract("shared.weight").mapped();
  EXPECT_TRUE(open("t5", t5).has("shared.weight"));
  Tensors llama = recorded_tensors("llama");  // config.json does not tie it
  llama.erase("model.embed_tokens.weight");
  EXPECT_FALSE(open("llama", llama).has("model.embed_tokens.weight"));
}

TEST_F(HuggingFaceNames, BertUsesTheDecodersOutputBias) {
  Tensors bert = recorded_tensors("bert");
  const Tensor bias = bert.at("cls.predictions.bias");
  bert["cls.predictions.decoder.bias"] = bias + 1;
  const CheckpointReader both = open("bert", bert);
  EXPECT_TRUE(at::equal(both.read("cls.predictions.bias"), bias + 1));
  EXPECT_TRUE(at::equal(both.read("cls.predictions.decoder.bias"), bias));
  bert.erase("cls.predictions.bias");
  const CheckpointReader alone = open("bert", bert);
  EXPECT_TRUE(at::equal(alone.read("cls.predictions.bias"), bias + 1));
  EXPECT_FALSE(alone.has("cls.predictions.decoder.bias"));
}

TEST_F(HuggingFaceNames, EqualTensorsComparesAllElements) {
  const Tensor table = at::arange(3 * 700'000, at::kFloat).reshape({3, 700'000});  // pieces of one row
  Tensor other = table.clone();
  other[2][699'999] = 0;
  const CheckpointReader source = open("llama", {{"a", table},
                                                 {"b", table.clone()},
                                                 {"c", other},
                                                 {"d", table.reshape({700'000, 3})},
                                                 {"e", at::ones({2, 2})},
                                                 {"f", at::ones({2, 2}, at::kBFloat16)}});
  EXPECT_TRUE(equal_tensors(source, "a", "b"));
  EXPECT_FALSE(equal_tensors(source, "a", "c"));
  EXPECT_FALSE(equal_tensors(source, "a", "d"));
  EXPECT_TRUE(equal_tensors(source, "e", "f"));
}

TEST_F(HuggingFaceNames, FoldersOfUnknownTypesKeepTheirNames) {
  checkpoint::write_safetensors(folder_ / "model.safetensors", {{"layers.0.weight", at::ones({2})}});
  for (const char* config : {"{}", "[]", R"({"model_type": "other"})", R"({"model_type": 3})"}) {
    write_file_atomically(folder_ / "config.json", config);
    EXPECT_EQ(open_hugging_face(folder_).names(), std::vector<std::string>{"layers.0.weight"}) << config;
  }
}

}  // namespace
}  // namespace colonnade::convert
