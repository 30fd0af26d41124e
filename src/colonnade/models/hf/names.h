// Names of our models' tensors in Hugging Face checkpoints: tables of names only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/layout/param.h"

namespace colonnade::models::hf {

/// The published families whose tensors hold a model of these settings exactly.
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

/// The family that can express `model`; nothing when none can (then our names are used).
///   Llama      rotary positions over the whole head, RMSNorm, SwiGLU, no biases
///   Mistral    the same with a sliding window, or with a hidden size that is no multiple of the heads
///   Qwen2      Llama with biases of queries, keys and values
///   Qwen3      Llama with norms of queries and keys
///   Mixtral    Llama or Mistral with experts in every layer, weighted by a softmax over the chosen ones
///   Qwen3-MoE  Qwen3 with experts in any layers, weighted by a softmax over the chosen ones or over all
///   GPT-OSS    Llama with biases, learned sinks, windows in any layers, experts of bounded quick-geglu in
///              every one
///   Gemma 2    Llama with zero-centred gammas, sandwich norms, scaled embeddings, GELU, windows in any
///              layers, soft caps of scores and of logits
///   Gemma 3    (text) Gemma 2 with norms of queries and keys in place of the cap of scores; its windows have
///              a rotary base of their own
///   DeepSeek-V3  multi-latent attention with normed vectors and --norm-epsilon 1e-6, dense layers before
///              those with experts and shared ones, a sigmoid router with a bias that only selects, groups
///              worth their best two scores; further predicted tokens too
///   GPT-2      learned positions, LayerNorm, GELU, biases, as many groups as heads
///   T5         (1.1) encoder and decoder, relative positions, RMSNorm, GELU with a gate, no biases, scores
///              as they are, as many groups as heads
///   BERT       sight both ways, learned positions, kinds of tokens, LayerNorm whose outputs are the residual
///              stream, GELU's erf form, biases, as many groups as heads; with or without a binary head
/// Other shared experts, routers, biases, activations, norms or positions fit none. How
/// experts are kept busy (losses, jitter, capacity) belongs to the training, not to the family.
std::optional<Family> family_of(const config::Model& model);

/// A tensor of the Hugging Face checkpoint and the part of our parameter that it holds: rows of it or, where
/// `expert` is given, of parameter[expert].
struct StoredTensor {
  std::string name;
  std::int64_t first_row = 0;  ///< of dimension 0 of what it is a part of
  std::int64_t rows = 0;
  bool transposed = false;             ///< stored as [in, out] (GPT-2's Conv1D), or [experts, in, out]
  std::optional<std::int64_t> expert;  ///< index of the parameter's dimension 0
};

/// A family, and the layers of the model: its checkpoints number those of further tokens behind them.
struct Naming {
  Naming(Family family, std::int64_t layers = 0)
      : family(family), layers(layers) {}  // NOLINT: a family will do
  Family family;
  std::int64_t layers;
};
/// That of family_of.
std::optional<Naming> naming_of(const config::Model& model);

/// The tensors that hold `spec` in `naming`; with nothing, one tensor under our own name.
std::vector<StoredTensor> tensors_of(const layout::ParamSpec& spec, std::optional<Naming> naming);

/// A tensor that a folder may hold beside the one it is a copy of.
struct Copy {
  std::string name;
  std::string original;
};

/// Copies that a folder of `model` must hold besides its tensors, as Transformers reads both: the bias of an
/// output layer of BERT's own.
std::vector<Copy> copies_to_save(const config::Model& model);

/// What the tensors of a folder and those of a model do not have in common.
struct Leftovers {
  std::vector<std::string> unknown;  ///< they may be part of what is computed
  std::vector<std::string> missing;  ///< tensors of the model
  std::vector<Copy> copies;          ///< but the output layer's of tied embeddings
  /// Others that the model computes nothing with, by what they are, in the plural: "buffers".
  std::map<std::string, std::vector<std::string>> unread;
};
/// `names`: all of a folder in the model's family. Tied output layers count as known.
Leftovers left_over(const config::Model& model, const std::vector<std::string>& names);

}  // namespace colonnade::models::hf
