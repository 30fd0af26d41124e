// FP8 and MXFP4 weights, box by box, against the numbers that they stand for.
#include "colonnade/convert/quantized.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint/fixtures.h"
#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/checkpoint/hugging_face.h"
#include "colonnade/checkpoint/safetensors.h"
#include "support/vectors.h"

namespace colonnade::convert {
namespace {

using at::Tensor;
using checkpoint::Box;
using checkpoint::CheckpointReader;

CheckpointReader recorded(const std::string& name) {
  return CheckpointReader::open_hugging_face(test::vectors() + "/hf_more/" + name);
}

Tensor whole(const checkpoint::ComposedTensor& tensor) {
  return tensor.compute({std::vector<std::int64_t>(tensor.shape.size(), 0), tensor.shape});
}

/// Every element by the definition, from the stored tensors.
Tensor fp8_by_hand(const Tensor& weight, const Tensor& scales, std::int64_t block) {
  const Tensor w = weight.to(at::kDouble), s = scales.to(at::kDouble), result = at::empty_like(w);
  for (std::int64_t i = 0; i < w.size(0); ++i)
    for (std::int64_t j = 0; j < w.size(1); ++j) result[i][j] = w[i][j] * s[i / block][j / block];
  return result.to(at::kFloat);
}

TEST(Quantized, Fp8TakesTheScaleOfItsBlock) {
  for (const auto& [folder, name, block] :
       {std::tuple{"deepseek_v3_fp8", "model.layers.1.self_attn.o_proj.weight", 128},
        std::tuple{"qwen3_fp8", "model.layers.1.mlp.gate_proj.weight", 32}}) {
    const CheckpointReader stored = recorded(folder);
    const auto weights = quantized_weights(stored);
    const auto& tensor = weights.at(name);
    EXPECT_EQ(tensor.shape, stored.info(name).shape);
    const Tensor expected =
        fp8_by_hand(stored.read(name), stored.read(std::string(name) + "_scale_inv"), block);
    EXPECT_TRUE(at::equal(whole(tensor), expected)) << folder;
    for (const Box& box : {Box{{30, 5}, {40, 20}}, Box{{0, 31}, {1, 2}}, Box{{63, 0}, {1, 1}}})
      EXPECT_TRUE(
          at::equal(tensor.compute(box),
                    expected.narrow(0, box.offset[0], box.shape[0]).narrow(1, box.offset[1], box.shape[1])))
          << folder;
    EXPECT_TRUE(is_part_of_quantized(std::string(name) + "_scale_inv", weights));
  }
  EXPECT_FALSE(quantized_weights(recorded("qwen3_fp8")).contains("model.layers.0.mlp.down_proj.weight"));
}

TEST(Quantized, Mxfp4HasTwoNumbersInAByte) {
  const CheckpointReader stored = recorded("gpt_oss_mxfp4");
  const std::string stem = "model.layers.1.mlp.experts.gate_up_proj";
  const auto weights = quantized_weights(stored);
  const auto& tensor = weights.at(stem);
  const Tensor blocks = stored.read(stem + "_blocks"), scales = stored.read(stem + "_scales");
  EXPECT_EQ(tensor.shape, (std::vector<std::int64_t>{blocks.size(0), blocks.size(2) * 32, blocks.size(1)}));
  constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const Tensor all = whole(tensor);
  for (const auto& [expert, in, out] : {std::tuple{0, 0, 0}, std::tuple{3, 1, 5}, std::tuple{2, 33, 63},
                                        std::tuple{1, 62, 7}, std::tuple{1, 63, 7}}) {
    const auto byte = blocks[expert][out][in / 32][in % 32 / 2].item<std::uint8_t>();
    const int bits = in % 2 == 0 ? byte & 15 : byte >> 4;
    const double value = (bits & 8 ? -1 : 1) * kMagnitudes[bits & 7] *
                         std::exp2(scales[expert][out][in / 32].item<std::uint8_t>() - 127);
    EXPECT_EQ(all[expert][in][out].item<double>(), value);
  }
  const Box box{{1, 30, 3}, {2, 10, 4}};
  EXPECT_TRUE(at::equal(tensor.compute(box), all.narrow(0, 1, 2).narrow(1, 30, 10).narrow(2, 3, 4)));
}

TEST(ConfigJson, MayHoldNumbersThatOnlyPythonWrites) {
  const checkpoint::test::TempFolder folder;
  const std::filesystem::path file = folder.path() / "config.json";
  std::ofstream(file) << R"({"a": [0.0, Infinity], "b": -Infinity, "c": "NaN \" Infinity", "d\\": NaN})";
  const auto config = checkpoint::read_json(file);
  EXPECT_TRUE(config.at("a")[1].is_null() && config.at("b").is_null() && config.at("d\\").is_null());
  EXPECT_EQ(config.at("c"), "NaN \" Infinity");
}

TEST(Quantized, ScalesMustFitTheBlocks) {
  const checkpoint::test::TempFolder folder;
  const std::string from = test::vectors() + "/hf_more/qwen3_fp8/";
  const std::filesystem::path to = folder;
  std::filesystem::copy_file(from + "model.safetensors", to / "model.safetensors");
  auto config = nlohmann::json::parse(read_file(from + "config.json"));
  config["quantization_config"]["weight_block_size"] = {16, 32};
  std::ofstream(to / "config.json") << config.dump();
  EXPECT_THROW(quantized_weights(CheckpointReader::open_hugging_face(to)), DataError);
  config["quantization_config"].erase("weight_block_size");
  std::ofstream(to / "config.json") << config.dump();
  EXPECT_THROW(quantized_weights(CheckpointReader::open_hugging_face(to)), DataError);
}

}  // namespace
}  // namespace colonnade::convert
