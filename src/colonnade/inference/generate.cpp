// See generate.h.
#include "colonnade/inference/generate.h"

#include <algorithm>
#include <span>

#include "colonnade/base/error.h"
#include "colonnade/base/progress.h"
#include "colonnade/base/reason.h"

namespace colonnade::inference {
namespace {

/// Tokens [1, n] at positions `begin` ...; begin is the cache's length.
tensor::Batch batch_of(const std::vector<std::int32_t>& tokens, std::int64_t begin,
                       const at::Device& device) {
  const auto n = static_cast<std::int64_t>(tokens.size());
  tensor::Batch batch;
  batch.set(tensor::Field::kTokens, at::tensor(tokens, at::kInt).to(at::kLong).view({1, n}).to(device));
  batch.set(tensor::Field::kPositionIds,
            at::arange(begin, begin + n, at::dtype(at::kLong)).view({1, n}).to(device));
  return batch;
}

constexpr std::int32_t kNoToken = -1;

/// The token after `text`.
std::int32_t sample_next(const at::Tensor& logits, const Request& request,
                         const std::vector<std::int32_t>& text) {
  const bool has_penalty = request.sampling.repetition_penalty != 1;
  const at::Tensor host = logits.reshape({-1})
                              .to(at::kCPU, at::kFloat, /*non_blocking=*/false, /*copy=*/has_penalty)
                              .contiguous();
  const std::span<float> values(host.data_ptr<float>(), static_cast<std::size_t>(host.numel()));
  const std::size_t vocab = request.vocab_size > 0
                                ? std::min(values.size(), static_cast<std::size_t>(request.vocab_size))
                                : values.size();
  if (has_penalty) penalize(values, text, request.sampling.repetition_penalty);
  return sample(values.first(vocab), request.sampling, static_cast<std::int64_t>(text.size()));
}

/// Next token after `text`, sampled by the leader and broadcast. If sampling fails, all ranks throw its
/// error.
std::int32_t choose(InferenceModel& network, const at::Tensor& logits, const Request& request,
                    const std::vector<std::int32_t>& text) {
  at::Tensor token = at::zeros({1}, network.options().dtype(at::kLong));
  std::string problem;
  if (network.is_leader()) {
    try {
      token.fill_(sample_next(logits, request, text));
    } catch (const Error& error) {
      problem = reason_of(error);
      token.fill_(kNoToken);
    }
  }
  network.broadcast_from_leader(token, "generate / next token");
  const auto chosen = static_cast<std::int32_t>(token.item<std::int64_t>());
  if (chosen == kNoToken)
    throw Error(network.ranks().world().all_gather_text(
        problem, "generate / problem")[static_cast<std::size_t>(network.leader())]);
  return chosen;
}

}  // namespace

void check(const Request& request, const config::Model& model) {
  if (request.prompt.empty())
    throw ConfigError("prompt must hold at least one token; got none; write --prompt TEXT");
  for (const std::int32_t token : request.prompt)
    if (token < 0 || token >= model.vocab_size)
      throw DataError(fmt::format(
          "prompt: token ids must be 0 to {}; got {}; use the tokenizer that the model was trained with",
          model.vocab_size - 1, token));
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t longest = longest_sequence(model);
  if (request.max_new_tokens > longest - length)
    throw ConfigError(fmt::format(
        "--max-new-tokens plus the prompt must fit the {} positions of the model; got a prompt of {} and {} "
        "new tokens; lower it or shorten the prompt",
        longest, length, request.max_new_tokens));
}

Generated generate(InferenceModel& network, const Request& request,
                   const std::function<void(std::int32_t)>& on_token) {
  check(request, network.run().model);
  progress().set_phase("generate");
  tensor::KeyValueCache cache;
  Generated out;
  std::vector<std::int32_t> text = request.prompt, next = request.prompt;
  while (static_cast<std::int64_t>(out.tokens.size()) < request.max_new_tokens) {
    const auto batch = batch_of(next, cache.length(), network.options().device());
    const at::Tensor logits = network.forward(batch, {.cache = &cache, .last_token = true});
    cache.advance(static_cast<std::int64_t>(next.size()));
    const std::int32_t token = choose(network, logits, request, text);
    out.ended = std::ranges::find(request.eos_ids, token) != request.eos_ids.end();
    if (out.ended) break;
    out.tokens.push_back(token);
    text.push_back(token);
    if (on_token) on_token(token);
    next = {token};
  }
  return out;
}

}  // namespace colonnade::inference
