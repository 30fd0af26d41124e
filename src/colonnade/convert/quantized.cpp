// See quantized.h.
#include "colonnade/convert/quantized.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <array>
#include <string_view>

#include "colonnade/base/error.h"

namespace colonnade::convert {
namespace {

using checkpoint::Box;
using checkpoint::CheckpointReader;
using checkpoint::ComposedTensor;

constexpr std::string_view kScales = "_scale_inv", kMxBlocks = "_blocks", kMxScales = "_scales";
constexpr std::int64_t kMxBlock = 32;  ///< numbers that share a scale

/// The box of a stored tensor in its own dtype.
at::Tensor read_box(const CheckpointReader& stored, const std::string& name, const Box& box) {
  const checkpoint::TensorInfo info = stored.info(name);
  at::Tensor data = at::empty(box.shape, at::TensorOptions().dtype(info.dtype));
  stored.read_into({name, info.shape, box.offset, data});
  return data;
}

std::int64_t blocks_in(std::int64_t length, std::int64_t block) { return (length + block - 1) / block; }

/// Weights of `box` in blocks of `block`.
at::Tensor read_fp8(const CheckpointReader& stored, const std::string& name,
                    std::array<std::int64_t, 2> block, const Box& box) {
  at::Tensor weights = read_box(stored, name, box).to(at::kFloat);
  Box grid{{0, 0}, {0, 0}};
  for (std::size_t d = 0; d < 2; ++d) {
    grid.offset[d] = box.offset[d] / block[d];
    grid.shape[d] = blocks_in(box.offset[d] + box.shape[d], block[d]) - grid.offset[d];
  }
  at::Tensor scales = read_box(stored, name + std::string(kScales), grid).to(at::kFloat);
  for (std::size_t d = 0; d < 2; ++d) {
    const auto dim = static_cast<std::int64_t>(d);
    scales = scales.repeat_interleave(block[d], dim).narrow(dim, box.offset[d] % block[d], box.shape[d]);
  }
  return weights.mul_(scales);
}

/// Values of the four bits sign, exponent (two) and mantissa.
at::Tensor fp4_values() {
  return at::tensor({0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F, -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F,
                     -4.0F, -6.0F});
}

/// Weights [in, out] of one expert; `stem`: the name without quantization.
at::Tensor read_mxfp4_expert(const CheckpointReader& stored, const std::string& stem, std::int64_t expert,
                             const Box& box) {
  const std::int64_t first = box.offset[1] / kMxBlock;
  const std::int64_t count = blocks_in(box.offset[1] + box.shape[1], kMxBlock) - first;
  const at::Tensor bytes =
      read_box(stored, stem + std::string(kMxBlocks),
               {{expert, box.offset[2], first, 0}, {1, box.shape[2], count, kMxBlock / 2}});
  const at::Tensor scales = read_box(stored, stem + std::string(kMxScales),
                                     {{expert, box.offset[2], first}, {1, box.shape[2], count}});
  constexpr int kBias = 127;
  const at::Tensor halves = at::stack({bytes.bitwise_and(15), bytes.__rshift__(4)}, -1).to(at::kInt);
  const at::Tensor values = fp4_values().index_select(0, halves.flatten()).view_as(halves).flatten(-2);
  return at::ldexp(values, scales.to(at::kFloat).sub_(kBias).unsqueeze(-1))
      .flatten(-2)
      .narrow(-1, box.offset[1] % kMxBlock, box.shape[1])
      .transpose(1, 2)
      .squeeze(0);
}

/// Weights [experts, in, out] of `box`, one expert at a time, as intermediate tensors are several times as
/// large.
at::Tensor read_mxfp4(const CheckpointReader& stored, const std::string& stem, const Box& box) {
  at::Tensor weights = at::empty(box.shape, at::kBFloat16);
  for (std::int64_t i = 0; i < box.shape[0]; ++i)
    weights[i].copy_(read_mxfp4_expert(stored, stem, box.offset[0] + i, box));
  return weights;
}

std::array<std::int64_t, 2> block_of(const nlohmann::json& quantization, const std::string& folder) {
  const auto given = quantization.value("weight_block_size", nlohmann::json());
  if (given.is_array() && given.size() == 2 && given[0].is_number_integer() && given[1].is_number_integer() &&
      given[0] > 0 && given[1] > 0)
    return {given[0].get<std::int64_t>(), given[1].get<std::int64_t>()};
  throw DataError(fmt::format(
      "{}: quantization_config.weight_block_size must be two numbers above 0; got {}; use the model's "
      "bf16 folder",
      folder, given.dump()));
}

void require_scales(const CheckpointReader& stored, const std::string& name,
                    const std::vector<std::int64_t>& expected) {
  const std::vector<std::int64_t> shape = stored.info(name).shape;
  if (shape != expected)
    throw DataError(
        fmt::format("{}: '{}' must have a scale for each block, [{}]; got [{}]; download the folder again",
                    stored.folder().string(), name, fmt::join(expected, ", "), fmt::join(shape, ", ")));
}

}  // namespace

std::map<std::string, ComposedTensor> quantized_weights(const CheckpointReader& stored) {
  std::map<std::string, ComposedTensor> weights;
  const nlohmann::json& config = stored.hf_config();
  if (!config.is_object() || !config.contains("quantization_config")) return weights;
  const nlohmann::json& quantization = config.at("quantization_config");
  if (!quantization.is_object()) return weights;
  const std::string method = quantization.value("quant_method", "");
  for (const std::string& name : stored.names()) {
    if (method == "fp8" && name.ends_with(kScales)) {
      const std::string weight = name.substr(0, name.size() - kScales.size());
      if (!stored.has(weight)) continue;
      const auto block = block_of(quantization, stored.folder().string());
      const auto shape = stored.info(weight).shape;
      if (shape.size() != 2) continue;
      require_scales(stored, name, {blocks_in(shape[0], block[0]), blocks_in(shape[1], block[1])});
      weights[weight] = {at::kFloat, shape, {}, [stored, weight, block](const Box& box) {
                           return read_fp8(stored, weight, block, box);
                         }};
    }
    if (method == "mxfp4" && name.ends_with(kMxBlocks)) {
      const std::string stem = name.substr(0, name.size() - kMxBlocks.size());
      const auto blocks = stored.info(name).shape;
      if (!stored.has(stem + std::string(kMxScales)) || blocks.size() != 4 || blocks[3] != kMxBlock / 2)
        continue;
      require_scales(stored, stem + std::string(kMxScales), {blocks[0], blocks[1], blocks[2]});
      weights[stem] = {
          at::kBFloat16, {blocks[0], blocks[2] * kMxBlock, blocks[1]}, {}, [stored, stem](const Box& box) {
            return read_mxfp4(stored, stem, box);
          }};
    }
  }
  return weights;
}

bool is_part_of_quantized(const std::string& name, const std::map<std::string, ComposedTensor>& quantized) {
  for (const std::string_view end : {kScales, kMxBlocks, kMxScales})
    if (name.ends_with(end) && quantized.contains(name.substr(0, name.size() - end.size()))) return true;
  return quantized.contains(name);
}

}  // namespace colonnade::convert
