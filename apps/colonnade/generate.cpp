// `colonnade generate`: continues a prompt.
#include "colonnade/inference/generate.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/inference/text_stream.h"
#include "colonnade/inference/weights.h"
#include "colonnade/job/prepare.h"
#include "colonnade/job/start.h"
#include "extras.h"
#include "verbs.h"

namespace colonnade::app {
namespace {

constexpr std::int64_t kDefaultNewTokens = 128;

const std::vector<config::Extra> kExtras = {
    {"--prompt", 1, "the text to continue"},
    {"--prompt-file", 1, "a file with the text to continue"},
    {"--max-new-tokens", 1, "at most so many tokens; default 128, or as many as the model's positions allow"},
    {"--temperature", 1, "logits are divided by it; 0 takes the most probable token; default 1"},
    {"--top-k", 1, "only the K most probable tokens; default 0: all"},
    {"--top-p", 1, "only the most probable tokens that reach this probability together; default 0: all"},
};

struct Asked {
  std::string prompt;
  std::int64_t max_new_tokens = kDefaultNewTokens;
  bool as_many_as_fit = true;  ///< max_new_tokens was not asked for: fewer where positions end
  inference::Sampling sampling;
};

Asked read_extras(config::Parsed& parsed) {
  Asked asked;
  asked.max_new_tokens = extra_number(parsed, "--max-new-tokens", kDefaultNewTokens);
  if (asked.max_new_tokens < 1)
    parsed.faults.push_back(
        fmt::format("--max-new-tokens: must be at least 1; got {}; write e.g. 100", asked.max_new_tokens));
  asked.as_many_as_fit = !parsed.extras.contains("--max-new-tokens");
  asked.sampling.temperature = extra_number(parsed, "--temperature", asked.sampling.temperature);
  asked.sampling.top_k = extra_number(parsed, "--top-k", asked.sampling.top_k);
  asked.sampling.top_p = extra_number(parsed, "--top-p", asked.sampling.top_p);
  asked.sampling.seed = static_cast<std::uint64_t>(parsed.run.training.seed);
  for (std::string& fault : inference::faults_of(asked.sampling)) parsed.faults.push_back(std::move(fault));
  if (parsed.extras.contains("--prompt") == parsed.extras.contains("--prompt-file"))
    parsed.faults.emplace_back(
        "prompt: exactly one of --prompt and --prompt-file must be given; got both or neither; write "
        "--prompt TEXT");
  config::require_none(parsed.faults);
  const std::string file = extra(parsed, "--prompt-file");
  asked.prompt = file.empty() ? extra(parsed, "--prompt") : read_file(file);
  return asked;
}

std::unique_ptr<data::Tokenizer> make_tokenizer(const config::Run& run) {
  if (auto tokenizer = job::tokenizer_of(run)) return tokenizer;
  return data::make_tokenizer({.type = "NullTokenizer", .vocab_size = run.model.vocab_size});
}

inference::Request request_of(const Asked& asked, const data::Tokenizer& tokenizer,
                              const config::Model& model) {
  inference::Request request{.prompt = tokenizer.encode(asked.prompt),
                             .max_new_tokens = asked.max_new_tokens,
                             .sampling = asked.sampling,
                             .vocab_size = tokenizer.vocab_size(),
                             .eod = tokenizer.eod()};
  // Nothing to continue: begin as after the end of another document.
  if (request.prompt.empty() && request.eod >= 0) request.prompt = {tokenizer.eod()};
  const auto room = inference::longest_sequence(model) - static_cast<std::int64_t>(request.prompt.size());
  if (asked.as_many_as_fit) request.max_new_tokens = std::clamp<std::int64_t>(room, 1, kDefaultNewTokens);
  return request;
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void run_request(inference::Network& network, const inference::Request& request, const std::string& prompt,
                 const data::Tokenizer& tokenizer) {
  const bool prints = network.ranks().rank() == 0;
  inference::TextStream stream(tokenizer, request.prompt);
  if (prints) print(prompt);
  const auto begin = std::chrono::steady_clock::now();
  const auto made = inference::generate(network, request, [&](std::int32_t token) {
    if (prints) print(stream.add(token));
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!prints) return;
  print(stream.finish() + "\n");
  if (::isatty(STDERR_FILENO) == 0) return;  // text that is piped on stays alone
  log::info("{} tokens in {:.2f} s ({:.1f} tokens/s), {}", made.tokens.size(), seconds,
            static_cast<double>(made.tokens.size()) / seconds,
            made.ended ? "ended by the model" : "as many as asked for");
}

}  // namespace

Offers generate_offers() { return {{"generate", "", kExtras, config::Use::kGenerate}}; }

int generate(const Arguments& arguments) {
  if (print_verb_help(arguments, {"generate --load DIR --prompt TEXT [--max-new-tokens N] [--temperature T] "
                                  "[--top-k K] [--top-p P] [--seed N]",
                                  kExtras, config::Use::kGenerate}))
    return kExitDone;
  config::Parsed parsed = read_settings(arguments, kExtras, config::Use::kGenerate);
  refuse_unread_settings(parsed, config::Use::kGenerate, "generate");
  const Asked asked = read_extras(parsed);
  inference::take_settings(parsed.run, config::Use::kGenerate);
  job::Started started = job::start(std::move(parsed.run), plan::Purpose::kModel);
  if (started.run.model.has_encoder() || started.run.model.bidirectional)
    throw ConfigError(fmt::format(
        "generate: text is written by models without an encoder; got a {}; `evaluate --tokens` tells its logits",
        started.run.model.has_encoder() ? "t5" : "bert"));
  const auto tokenizer = make_tokenizer(started.run);
  const auto request = request_of(asked, *tokenizer, started.run.model);
  inference::check(request, started.run.model);
  const auto weights = inference::open_weights(started.run, started.ranks.world());
  inference::Network network(std::move(started.run), std::move(started.ranks), weights);
  run_request(network, request, asked.prompt, *tokenizer);
  return kExitDone;
}

}  // namespace colonnade::app
