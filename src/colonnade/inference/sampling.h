// Sampling of the next token: repetition penalty, temperature, top-k, top-p and a counter-based random
// number.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace colonnade::inference {

/// Sampling settings. Greedy (argmax) at temperature 0 or top_k 1.
/// Source: Megatron's core/inference/sampling/torch_sampling.py; there top-k and top-p are mutually
/// exclusive, here they combine.
struct Sampling {
  double temperature = 1.0;  ///< logits are divided by it
  std::int64_t top_k = 0;    ///< > 0: only the k largest logits
  double top_p = 0;  ///< > 0: nucleus sampling, only the most probable tokens up to this total probability
  double repetition_penalty = 1;  ///< for tokens that the text contains (penalize())
  std::uint64_t seed = 1234;

  [[nodiscard]] bool greedy() const { return temperature == 0 || top_k == 1; }
};

/// Faults of the settings as "<flag> <rule>; got <value>; <fix>".
std::vector<std::string> faults_of(const Sampling& sampling);

struct Candidate {
  std::int64_t token = 0;
  double probability = 0;
};

/// Divides logits of tokens in `seen` by `penalty`, each once; negative logits are multiplied. A penalty
/// above 1 makes repetition less probable. Source: Transformers' RepetitionPenaltyLogitsProcessor.
void penalize(std::span<float> logits, std::span<const std::int32_t> seen, double penalty);

/// Candidates for the next token, most probable first, lower ids first among equal logits. Steps:
/// temperature; top_k largest; softmax over them; tokens whose predecessors' probabilities sum to at most
/// top_p (the first always stays); renormalization. Throws Error if no logit is finite or one is NaN or
/// +infinity.
std::vector<Candidate> candidates(std::span<const float> logits, const Sampling& sampling);

/// Random number in [0, 1) for token `position`: a function of seed and position only, so the same in every
/// layout.
double draw(std::uint64_t seed, std::int64_t position);

/// Token at `position`: the first candidate whose cumulative probability exceeds draw().
std::int64_t sample(std::span<const float> logits, const Sampling& sampling, std::int64_t position);

}  // namespace colonnade::inference
