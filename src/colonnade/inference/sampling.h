// The next token from the logits of the last one: repetition penalty, temperature, top-k, top-p and a
// counter-based draw.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace colonnade::inference {

/// How a token is chosen. Greedy (the largest logit) at temperature 0 or top_k 1.
/// Source: Megatron's core/inference/sampling/torch_sampling.py; there top-k and top-p exclude each
/// other, here they combine.
struct Sampling {
  double temperature = 1.0;       ///< logits are divided by it
  std::int64_t top_k = 0;         ///< > 0: only the k largest logits
  double top_p = 0;               ///< > 0: only the most probable tokens that reach this probability together
  double repetition_penalty = 1;  ///< of tokens that the text holds already (penalize())
  std::uint64_t seed = 1234;

  [[nodiscard]] bool greedy() const { return temperature == 0 || top_k == 1; }
};

/// What is wrong with the settings of generate, as "<flag>: <rule>; got <value>; <way out>".
std::vector<std::string> faults_of(const Sampling& sampling);

struct Candidate {
  std::int64_t token = 0;
  double probability = 0;
};

/// Divides the logits of the tokens in `seen` by `penalty`, each once; negative ones are multiplied. Above 1
/// it makes repetition less probable, as RepetitionPenaltyLogitsProcessor of Transformers.
void penalize(std::span<float> logits, std::span<const std::int32_t> seen, double penalty);

/// The tokens that can come next, most probable first; among equal logits the lower id. In this order:
/// temperature; the top_k largest; softmax over them; of these, each token before which less than or
/// exactly top_p has been reached (the first always stays); probabilities made to sum to 1. Throws
/// Error when no logit is finite or one is NaN or +infinity.
std::vector<Candidate> candidates(std::span<const float> logits, const Sampling& sampling);

/// The number in [0, 1) that decides token `position` of a text: a function of seed and position alone,
/// so that every layout draws the same.
double draw(std::uint64_t seed, std::int64_t position);

/// The token at `position`: the first candidate at which the probabilities so far exceed the draw.
std::int64_t sample(std::span<const float> logits, const Sampling& sampling, std::int64_t position);

}  // namespace colonnade::inference
