// Flat buffers of Megatron's distributed optimizer: parameters of a rank and model chunk in the reverse of
// their order in the model, each at a multiple of 64 elements, in buckets. Private to convert/megatron.
// Source: megatron/core/distributed/param_and_grad_buffer.py, megatron/core/optimizer/distrib_optimizer.py.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "colonnade/convert/megatron/source.h"

namespace colonnade::convert::megatron {

/// Modules whose parameter order a run has: Transformer Engine's or Megatron's own. Nothing in a file says
/// which.
enum class ModuleOrder : std::uint8_t { kTransformerEngine, kLocal };

/// A parameter of a rank: a tensor of the model, or one of its experts.
struct FlatParam {
  std::string name;          ///< in Source::model; "": a copy of the embeddings, which is skipped
  std::int64_t expert = -1;  ///< in dimension 0 of the tensor; -1: no expert
  checkpoint::Sizes shape;   ///< of the rank's share, without the dimension of experts
  Share share;
};

/// A rank's position in the layout that saved, and one of its model chunks.
struct RankChunk {
  std::int64_t tp = 0, pp = 0, ep = 0, vp = 0;
};

/// Parameters of a rank's chunk, in the model's order: experts or all others. Throws DataError for a layout
/// whose chunks cannot be told from the args.
std::vector<FlatParam> params_of(const Source& source, const RankChunk& chunk, bool experts,
                                 ModuleOrder order);

/// One buffer of a state: buckets of 1-D parts.
struct FlatBuffer {
  std::vector<checkpoint::ComposedTensor> buckets;
  std::vector<std::int64_t> unpadded;  ///< elements per bucket without the padding at its end
};

/// Whether the parameters fill the buckets exactly.
bool fits(const std::vector<FlatParam>& params, const std::vector<std::int64_t>& unpadded);

/// Adds the values of all parameters in a buffer to `into`, whose tensors have the shapes of the model's.
void unflatten(const FlatBuffer& buffer, const std::vector<FlatParam>& params, const Tensors& model,
               Tensors& into);

}  // namespace colonnade::convert::megatron
