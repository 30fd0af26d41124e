// Text from a prompt: one pass over the prompt, then one pass per token over the kept keys and values.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "colonnade/inference/network.h"
#include "colonnade/inference/sampling.h"

namespace colonnade::inference {

struct Request {
  std::vector<std::int32_t> prompt;  ///< at least one token
  std::int64_t max_new_tokens = 0;
  Sampling sampling;
  std::int64_t vocab_size = 0;     ///< > 0: only tokens below it come, those that the tokenizer knows
  std::vector<std::int32_t> ends;  ///< each one ends the text and is not part of it; empty: nothing does
};

struct Generated {
  std::vector<std::int32_t> tokens;  ///< without the prompt
  bool ended = false;                ///< by one of the ends; else max_new_tokens were made
};

/// Throws DataError for a prompt token outside of the vocabulary, ConfigError for an empty prompt and where
/// prompt and new tokens do not fit the model's positions.
void check(const Request& request, const config::Model& model);

/// Continues `request.prompt`, which is checked. The speaker chooses each token and tells the others, so
/// every rank of any layout returns the same; replicas repeat the work. `on_token` is called on every rank
/// as soon as a token is known. Memory: keys and values of all tokens, 2 x layers / pp x groups / tp x head
/// x tokens. Collective.
Generated generate(Network& network, const Request& request,
                   const std::function<void(std::int32_t)>& on_token = {});

}  // namespace colonnade::inference
