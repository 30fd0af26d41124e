// Text generation: one forward pass over the prompt, then one per token with a KV cache.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "colonnade/inference/inference_model.h"
#include "colonnade/inference/sampling.h"

namespace colonnade::inference {

struct Request {
  std::vector<std::int32_t> prompt;  ///< at least one token
  std::int64_t max_new_tokens = 0;
  Sampling sampling;
  std::int64_t vocab_size = 0;        ///< > 0: only token ids below it, those of the tokenizer, are generated
  std::vector<std::int32_t> eos_ids;  ///< each ends the text and is not part of it; empty: no end
};

struct Generated {
  std::vector<std::int32_t> tokens;  ///< without the prompt
  bool ended = false;                ///< stopped at one of the eos_ids; false: max_new_tokens reached
};

/// Throws DataError for a prompt token outside the vocabulary, ConfigError for an empty prompt or if prompt
/// and new tokens exceed the model's positions.
void check(const Request& request, const config::Model& model);

/// Checks and continues `request.prompt`. The leader samples each token and broadcasts it, so all ranks of
/// any layout return the same; replicas repeat the work. `on_token` is called on every rank for each token.
/// Memory: KV cache of 2 x layers / pp x groups / tp x head x tokens elements. Collective.
Generated generate(InferenceModel& network, const Request& request,
                   const std::function<void(std::int32_t)>& on_token = {});

}  // namespace colonnade::inference
