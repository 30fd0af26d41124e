// Names of our models' tensors in Hugging Face checkpoints.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/layout/param.h"

namespace colonnade::models::hf {

/// Hugging Face architectures whose tensors can hold a model exactly.
enum class Family {
  kLlama,
  kMistral,
  kQwen2,
  kQwen3,
  kMixtral,
  kQwen3Moe,
  kGptOss,
  kGemma2,
  kGemma3,
  kGpt2,
  kDeepseekV3,
  kT5,
  kBert
};

/// The family that can express `model`; nothing if none can (checkpoints then use our names).
///   Llama      rotary embedding over the full head, RMSNorm, SwiGLU, no biases
///   Mistral    Llama with a sliding window, or with a hidden size that is no multiple of the heads
///   Qwen2      Llama with QKV biases
///   Qwen3      Llama with QK norms
///   Mixtral    Llama or Mistral with experts in every layer, weights a softmax over the chosen experts
///   Qwen3-MoE  Qwen3 with experts in any layers, weights a softmax over the chosen or over all experts
///   GPT-OSS    Llama with biases, learned sinks, sliding windows in any layers, experts with clamped
///   quick-geglu
///              in every layer
///   Gemma 2    Llama with zero-centered norm weights, sandwich norms, scaled embeddings, GeGLU, sliding
///   windows
///              in any layers, soft caps on attention scores and logits
///   Gemma 3    (text) Gemma 2 with QK norms instead of the attention soft cap and a separate rotary base for
///              sliding-window layers
///   DeepSeek-V3  multi-latent attention with latent norms and --norm-epsilon 1e-6, dense layers before MoE
///              layers with shared experts, sigmoid router with a bias for selection only, expert groups
///              ranked by their top two scores; multi-token prediction
///   GPT-2      learned positions, LayerNorm, GELU, biases, multi-head attention
///   T5         (1.1) encoder and decoder, relative positions, RMSNorm, gated GELU, no biases, unscaled
///   scores,
///              multi-head attention
///   BERT       bidirectional attention, learned positions, token types, post-LN LayerNorm, GELU in erf form,
///              biases, multi-head attention; with or without a binary head
/// Other shared experts, routers, biases, activations, norms or positions fit none. Load balancing (losses,
/// jitter, capacity) is a training setting and does not affect the family.
std::optional<Family> family_of(const config::Model& model);

/// A tensor of a Hugging Face checkpoint and the rows of our parameter, or of parameter[index], that it
/// holds.
struct StoredTensor {
  std::string name;
  std::int64_t first_row = 0;  ///< in dimension 0 of the parameter or of parameter[index]
  std::int64_t rows = 0;
  bool transposed = false;            ///< stored as [in, out] (GPT-2's Conv1D), or [experts, in, out]
  std::optional<std::int64_t> index;  ///< in dimension 0 of a parameter of all experts
};

/// A family and the model's number of layers, after which its checkpoints number MTP layers.
struct Naming {
  Naming(Family family, std::int64_t layers = 0)
      : family(family), layers(layers) {}  // NOLINT: implicit conversion from Family
  Family family;
  std::int64_t layers;
};
/// Naming of family_of(model).
std::optional<Naming> naming_of(const config::Model& model);

/// Checkpoint tensors that hold `spec`; without `naming` one tensor under our own name.
std::vector<StoredTensor> tensors_of(const layout::ParamSpec& spec, std::optional<Naming> naming);

/// A checkpoint tensor that duplicates another one.
struct Copy {
  std::string name;
  std::string original;
  bool is_read = false;  ///< Transformers reads the copy: it may differ from the original
};

/// Copies that a checkpoint of `model` must hold because Transformers reads both: the output bias of a BERT
/// with an untied output layer.
std::vector<Copy> copies_to_save(const config::Model& model);

/// Differences between the tensors of a checkpoint and those of a model.
struct TensorDiff {
  std::vector<std::string> unknown;  ///< unexpected tensors that may affect the model's output
  std::vector<std::string> missing;  ///< tensors of the model that the checkpoint lacks
  std::vector<Copy> copies;          ///< copies, except a tied output layer
  /// Tensors that do not affect the model's output, by kind in the plural: "buffers".
  std::map<std::string, std::vector<std::string>> unused;
};
/// `names`: all tensors of a checkpoint of the model's family. Tied output layers count as known.
TensorDiff tensor_diff(const config::Model& model, const std::vector<std::string>& names);

}  // namespace colonnade::models::hf
