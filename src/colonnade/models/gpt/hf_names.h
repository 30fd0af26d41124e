// Names of the GPT family's tensors in Hugging Face checkpoints: tables of names only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/plan/param.h"

namespace colonnade::models::gpt {

/// The published families whose tensors hold a model of these settings exactly.
enum class HfFamily { kLlama, kMistral, kGpt2 };

/// The family that can express `model`; nothing when none can (then our names are used).
///   Llama    rotary positions over the whole head, RMSNorm, SwiGLU, no biases
///   Mistral  the same with a sliding window
///   GPT-2    learned positions, LayerNorm, GELU, biases, as many groups as heads
/// QK norms, zero-centred gammas, other biases, activations, norms or positions fit none.
std::optional<HfFamily> hf_family(const config::Model& model);

/// A tensor of the Hugging Face checkpoint and the rows of our parameter that it holds.
struct HfTensor {
  std::string name;
  std::int64_t first_row = 0;  ///< of our parameter's dimension 0
  std::int64_t rows = 0;
  bool transposed = false;  ///< stored as [in, out] (GPT-2's Conv1D)
};

/// The tensors that hold `spec` in `family`; with nothing, one tensor under our own name.
std::vector<HfTensor> hf_tensors(const plan::ParamSpec& spec, std::optional<HfFamily> family);

/// Those of `names`, a checkpoint's in the model's family, that hold no parameter of the model. Left out are
/// what its tensors do not depend on: rotary frequencies, causal masks, the output layer's copy of tied
/// embeddings.
std::vector<std::string> left_over(const config::Model& model, const std::vector<std::string>& names);

}  // namespace colonnade::models::gpt
