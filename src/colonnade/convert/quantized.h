// Quantized weights of Hugging Face folders, read as the weights that they stand for: FP8 with a scale for
// each block, and MXFP4.
#pragma once

#include <map>
#include <string>

#include "colonnade/checkpoint/load.h"

namespace colonnade::convert {

/// Tensors of `stored` that its config.json (quantization_config) declares quantized, by the names that they
/// have without quantization:
///   fp8    x.weight (e4m3) times x.weight_scale_inv [ceil(rows / r), ceil(columns / c)] in blocks of
///          weight_block_size [r, c]; fp32
///   mxfp4  x_blocks uint8 [experts, out, in / 32, 16], two numbers a byte, the low half first, times
///          2^(x_scales - 127); bf16 [experts, in, out]
/// Weights without scales (modules_to_not_convert) are not listed. Throws DataError where scales do not fit.
std::map<std::string, checkpoint::ComposedTensor> quantized_weights(
    const checkpoint::CheckpointReader& stored);

/// Whether `name` holds the blocks or scales of a quantized weight.
bool is_part_of_quantized(const std::string& name,
                          const std::map<std::string, checkpoint::ComposedTensor>& quantized);

}  // namespace colonnade::convert
