// convert/megatron: every recorded checkpoint of Megatron's formats holds the recorded tensors, bit for bit.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/checkpoint/safetensors.h"
#include "colonnade/convert/hugging_face.h"
#include "colonnade/convert/megatron/legacy.h"
#include "colonnade/convert/megatron/reader.h"
#include "colonnade/convert/megatron/torch_dist.h"
#include "colonnade/convert/torch_distributed.h"
#include "support/sha256.h"
#include "support/vectors.h"

namespace colonnade::convert::megatron {
namespace {

namespace fs = std::filesystem;
using checkpoint::ComposedTensor;
using checkpoint::Sizes;
using nlohmann::json;

fs::path vectors_te() { return fs::path(test::vectors()) / "megatron_ckpt_te"; }

at::Tensor whole(const ComposedTensor& tensor) {
  at::Tensor data = at::zeros(tensor.shape, at::TensorOptions().dtype(tensor.dtype));
  checkpoint::read_box(tensor, {"", tensor.shape, Sizes(tensor.shape.size(), 0), data});
  return data;
}

/// [dtype, shape, sha256] as in NAME.expected.json.
json digest(const at::Tensor& tensor) {
  const std::string dtype = tensor.scalar_type() == at::kBFloat16 ? "bfloat16" : "float32";
  const std::string bytes(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  return {dtype, tensor.sizes().vec(), test::sha256(bytes)};
}

/// Adds the tensors under the names of the vectors, where each expert has tensors of its own.
void add_digests(json& digests, const std::string& prefix, const Tensors& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (name.find("_extra_state") != std::string::npos) continue;
    const at::Tensor all = whole(tensor);
    const std::string stack = ".experts.experts.";
    const auto at = name.find(stack);
    if (at == std::string::npos) {
      digests[prefix + name] = digest(all);
      continue;
    }
    for (std::int64_t e = 0; e < all.size(0); ++e)
      digests[prefix + name.substr(0, at) + ".experts." + std::to_string(e) + "." +
              name.substr(at + stack.size())] = digest(all[e].contiguous());
  }
}

json digests_of(const Source& source) {
  json digests = json::object();
  add_digests(digests, "", source.model);
  for (const auto& [state, tensors] : source.optimizer) add_digests(digests, state + ".", tensors);
  return digests;
}

Source open_source(const fs::path& path) {
  const auto found = find_folder(path, std::nullopt);
  EXPECT_TRUE(found.has_value()) << path;
  return found->format == Format::kTorchDist ? open_torch_dist(found->folder) : open_legacy(found->folder);
}

TEST(Megatron, EveryRecordedCheckpointHoldsTheRecordedTensors) {
  const json manifest = json::parse(read_file(vectors_te() / "manifest.json"));
  int compared = 0;
  for (const auto& [name, entry] : manifest.at("checkpoints").items()) {
    if (!entry.contains("expected")) continue;
    SCOPED_TRACE(name);
    const json expected = json::parse(read_file(vectors_te() / entry.at("expected").get<std::string>()));
    const json got = digests_of(open_source(vectors_te() / entry.at("folder").get<std::string>()));
    std::size_t differ = 0;
    for (const auto& [key, value] : got.items()) {
      if (expected.contains(key) && expected.at(key) == value) continue;
      if (++differ < 4)
        ADD_FAILURE() << key << ": " << value << " instead of "
                      << (expected.contains(key) ? expected.at(key) : json());
    }
    // A checkpoint of weights alone shares the file of expected tensors with those that have states.
    for (const auto& [key, value] : expected.items()) {
      const bool is_state = key.starts_with("param.") || key.starts_with("exp_avg");
      if (!got.contains(key) &&
          !(is_state && entry.at("what").get<std::string>().find("no optimizer") != std::string::npos))
        if (++differ < 8) ADD_FAILURE() << "missing " << key;
    }
    EXPECT_EQ(differ, 0U);
    ++compared;
  }
  EXPECT_GE(compared, 15);
}

TEST(Megatron, WrongStatesAreRecognizedAndDropped) {
  const Source source = open_source(vectors_te() / "megatron_ckpt_more" / "buckets_dp2_fully_wrong");
  EXPECT_TRUE(source.optimizer.empty());
  EXPECT_THAT(source.dropped, ::testing::HasSubstr("a known fault of megatron-core 0.15 to 0.19.2"));
  const json expected = json::parse(read_file(vectors_te() / "megatron_ckpt" / "buckets.expected.json"));
  const json got = digests_of(source);
  EXPECT_FALSE(got.empty());
  for (const auto& [key, value] : got.items()) EXPECT_EQ(value, expected.at(key)) << key;
}

fs::path vectors_plain() { return fs::path(test::vectors()) / "megatron_ckpt"; }

/// Whether every tensor of the model equals the one in the Hugging Face folder from which the run started.
void expect_weights_of(const std::string& checkpoint, const std::string& folder) {
  SCOPED_TRACE(checkpoint);
  const auto found = find_folder(vectors_plain() / checkpoint, std::nullopt);
  ASSERT_TRUE(found.has_value());
  const auto source = open(*found);
  const auto expected = open_hugging_face(fs::path(test::vectors()) / folder);
  std::vector<std::string> names = source.names();
  std::erase_if(names, [](const std::string& name) { return name.starts_with("optimizer."); });
  EXPECT_EQ(names, expected.names());
  for (const std::string& name : names)
    EXPECT_TRUE(at::equal(source.read(name), expected.read(name))) << name;
}

TEST(Megatron, WeightsAreThoseOfTheHuggingFaceFolder) {
  for (const char* run : {"llama_tp1pp1", "llama_tp2pp2", "llama_dp2_fully_reshardable",
                          "llama_tp1_plain_adam", "llama_legacy_tp2"})
    expect_weights_of(run, "hf/llama");
  expect_weights_of("moe_ep2", "trajectory/moe");
}

/// Relative to the largest value, as runs in other layouts sum in another order.
void expect_close(const at::Tensor& got, const at::Tensor& expected, const std::string& name) {
  EXPECT_LE((got - expected).abs().max().item<double>(), 1e-4 * expected.abs().max().item<double>()) << name;
}

/// Moments under Hugging Face names, as the run's optimizer had them in memory: rows of our parameter.
TEST(Megatron, MomentsAreThoseOfTheRun) {
  const checkpoint::SafetensorsFile expected(vectors_plain() / "llama.expected.safetensors");
  for (const char* run :
       {"llama_tp1pp1", "llama_tp2pp2", "llama_dp2_fully_reshardable", "llama_tp1_plain_adam"}) {
    SCOPED_TRACE(run);
    const auto source = open(*find_folder(vectors_plain() / run, std::nullopt));
    for (const std::string state : {"exp_avg", "exp_avg_sq"}) {
      const at::Tensor fused =
          source.read("optimizer." + state + ".decoder.layers.1.self_attention.linear_qkv.weight");
      std::vector<at::Tensor> parts;
      for (const char* part : {"q_proj", "k_proj", "v_proj"})
        parts.push_back(expected.view(state + ".model.layers.1.self_attn." + part + ".weight"));
      expect_close(fused, at::cat(parts), state);
      const at::Tensor down = source.read("optimizer." + state + ".decoder.layers.0.mlp.linear_fc2.weight");
      expect_close(down, expected.view(state + ".model.layers.0.mlp.down_proj.weight"), state);
    }
  }
}

/// Folders of torch.distributed.checkpoint of other programs hold the weights of a Hugging Face folder.
TEST(TorchDistributed, WeightsHaveHuggingFaceNamesAndOrder) {
  config::Model model;
  model.kv_channels = 8;
  for (const char* folder : {"megatron_ckpt/titan_fsdp2_tp2", "megatron_ckpt_more/titan_fsdp2_v022"}) {
    SCOPED_TRACE(folder);
    const auto source = open_torch_distributed(vectors_te() / folder, &model);
    ASSERT_TRUE(source.has_value());
    const checkpoint::SafetensorsFile stored(vectors_te() / folder / "expected.safetensors");
    const auto expected = [&](const std::string& a, const std::string& b) {
      return stored.view(stored.has(a) ? a : b);
    };
    EXPECT_TRUE(at::equal(source->read("lm_head.weight"), expected("output.weight", "lm_head.weight")));
    EXPECT_TRUE(at::equal(source->read("model.layers.1.mlp.down_proj.weight"),
                          stored.view("layers.1.feed_forward.w2.weight")));
    // Adjacent rows of a head become its halves.
    const at::Tensor pairs =
        expected("layers.1.attention.wk.weight", "layers.1.attention.qkv_linear.wk.weight");
    const at::Tensor halves = pairs.view({-1, 4, 2, 32}).transpose(1, 2).reshape({-1, 32});
    EXPECT_TRUE(at::equal(source->read("model.layers.1.self_attn.k_proj.weight"), halves));
    EXPECT_FALSE(open_torch_distributed(vectors_te() / folder)->has("lm_head.weight"));
  }
  for (const char* folder : {"dcp_plain", "dcp_dtensor2"}) {
    SCOPED_TRACE(folder);
    const auto source = open_torch_distributed(vectors_plain() / folder, &model);
    ASSERT_TRUE(source.has_value());
    const auto expected = open_hugging_face(fs::path(test::vectors()) / "hf" / "llama");
    EXPECT_EQ(source->names(), expected.names());
    for (const std::string& name : expected.names())
      EXPECT_TRUE(at::equal(source->read(name), expected.read(name))) << name;
  }
  EXPECT_FALSE(open_torch_distributed(vectors_plain() / "llama_tp1pp1" / "iter_0000003", &model).has_value());
}

}  // namespace
}  // namespace colonnade::convert::megatron
