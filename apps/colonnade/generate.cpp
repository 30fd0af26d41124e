// `colonnade generate`: continues a prompt.
#include "colonnade/inference/generate.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/config/stacks.h"
#include "colonnade/inference/generation_config.h"
#include "colonnade/inference/text_stream.h"
#include "colonnade/inference/weights.h"
#include "colonnade/job/prepare.h"
#include "colonnade/job/start.h"
#include "colonnade/job/tokenizer_source.h"
#include "extras.h"
#include "verbs.h"

namespace colonnade::app {
namespace {

constexpr std::int64_t kDefaultNewTokens = 128;

const std::vector<config::VerbFlag> kExtras = {
    {"--prompt", "TEXT", "prompt text"},
    {"--prompt-file", "FILE", "file with the prompt text"},
    {"--max-new-tokens", "N",
     "maximum number of generated tokens; default: generation_config.json's, else 128 or fewer to fit the "
     "model's positions"},
    {"--temperature", "T",
     "softmax temperature; 0: greedy; default: generation_config.json's, else 0, or 1 with --top-k or "
     "--top-p"},
    {"--top-k", "K",
     "sample from the K most probable tokens; 0: all; default: generation_config.json's, else 0"},
    {"--top-p", "P",
     "nucleus sampling: most probable tokens up to this total probability; 0: all; default: "
     "generation_config.json's, else 0"},
    {"--repetition-penalty", "R",
     "penalty on logits of tokens that the text contains; 1: none; default: generation_config.json's, "
     "else 1"},
};

struct GenerateOptions {
  std::string prompt;
  std::optional<std::int64_t> max_new_tokens;
  inference::SamplingValues sampling;
  std::uint64_t seed = 0;
};

template <typename Number>
std::optional<Number> optional_number(config::Parsed& parsed, const std::string& flag, Number example) {
  if (!parsed.extras.contains(flag)) return std::nullopt;
  return extra_number(parsed, flag, example);
}

GenerateOptions read_extras(config::Parsed& parsed) {
  GenerateOptions options;
  options.max_new_tokens = optional_number(parsed, "--max-new-tokens", kDefaultNewTokens);
  if (options.max_new_tokens && *options.max_new_tokens < 1)
    parsed.faults.push_back(
        fmt::format("--max-new-tokens must be at least 1; got {}; write e.g. 100", *options.max_new_tokens));
  options.sampling = {.temperature = optional_number(parsed, "--temperature", 0.8),
                      .top_k = optional_number<std::int64_t>(parsed, "--top-k", 40),
                      .top_p = optional_number(parsed, "--top-p", 0.9),
                      .repetition_penalty = optional_number(parsed, "--repetition-penalty", 1.1)};
  options.seed = static_cast<std::uint64_t>(parsed.run.training.seed);
  for (std::string& fault : inference::faults_of(inference::sampling_of({}, options.sampling, options.seed)))
    parsed.faults.push_back(std::move(fault));
  if (parsed.extras.contains("--prompt") == parsed.extras.contains("--prompt-file"))
    parsed.faults.emplace_back(
        "prompt: exactly one of --prompt and --prompt-file must be given; got both or neither; use "
        "--prompt TEXT");
  config::require_none(parsed.faults);
  const std::string file = extra(parsed, "--prompt-file");
  options.prompt = file.empty() ? extra(parsed, "--prompt") : read_file(file);
  return options;
}

std::unique_ptr<tokenizers::Tokenizer> make_tokenizer(const config::Run& run) {
  if (auto tokenizer = job::tokenizer_of(run)) return tokenizer;
  return tokenizers::make_tokenizer({.type = "NullTokenizer", .vocab_size = run.model.vocab_size});
}

/// Sets what no flag gives from the checkpoint: end-of-sequence tokens, sampling and number of tokens.
void apply_defaults(inference::Request& request, const inference::GenerationConfig& config,
                    const GenerateOptions& options, const tokenizers::Tokenizer& tokenizer,
                    const config::Model& model) {
  const std::int32_t eod = tokenizer.eod();
  if (config.eos_ids)
    request.eos_ids = *config.eos_ids;
  else if (eod >= 0)
    request.eos_ids = {eod};
  // Without a prompt begin with the BOS token or, as after another document, with the EOD token.
  const std::int32_t begin = config.bos >= 0 ? config.bos : eod;
  if (request.prompt.empty() && begin >= 0) request.prompt = {begin};
  request.sampling = inference::sampling_of(config, options.sampling, options.seed);
  if (options.max_new_tokens) return;
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  request.max_new_tokens = std::clamp<std::int64_t>(inference::longest_sequence(model) - length, 1,
                                                    new_tokens_of(config, length, kDefaultNewTokens));
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

void run_request(inference::InferenceModel& network, const inference::Request& request,
                 const std::string& prompt, const tokenizers::Tokenizer& tokenizer) {
  const bool prints = network.ranks().rank() == 0;
  inference::TextStream stream(tokenizer, request.prompt);
  if (prints) print(prompt);
  const auto begin = std::chrono::steady_clock::now();
  const auto generated = inference::generate(network, request, [&](std::int32_t token) {
    if (prints) print(stream.add(token));
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!prints) return;
  print(stream.finish() + "\n");
  if (::isatty(STDERR_FILENO) == 0) return;  // no statistics in piped output
  log::info("{} tokens in {:.2f} s ({:.1f} tokens/s), {}", generated.tokens.size(), seconds,
            static_cast<double>(generated.tokens.size()) / seconds,
            generated.ended ? "ended by the model" : "maximum reached");
}

}  // namespace

Offers generate_offers() { return {{"generate", "", kExtras, config::Use::kGenerate}}; }

int generate(const Arguments& arguments) {
  if (print_verb_help(arguments, {"generate --load DIR --prompt TEXT [--max-new-tokens N] [--temperature T] "
                                  "[--top-k K] [--top-p P] [--repetition-penalty R] [--seed N]",
                                  kExtras, config::Use::kGenerate}))
    return kExitDone;
  config::Parsed parsed = read_settings(arguments, kExtras, config::Use::kGenerate);
  reject_unread_settings(parsed, config::Use::kGenerate, "generate");
  const GenerateOptions options = read_extras(parsed);
  inference::adopt_settings(parsed.run, config::Use::kGenerate);
  job::StartedRun started = job::start(std::move(parsed.run), rules::Purpose::kModel);
  if (config::has_several_stacks(started.run.model) || started.run.model.bidirectional)
    throw ConfigError(
        fmt::format("generate supports decoder-only models; got a {}; use `evaluate --tokens` for its logits",
                    config::has_several_stacks(started.run.model) ? "t5" : "bert"));
  const auto tokenizer = make_tokenizer(started.run);
  inference::Request request{.prompt = job::prompt_ids(started.run, *tokenizer, options.prompt),
                             .max_new_tokens = options.max_new_tokens.value_or(1),
                             .vocab_size = tokenizer->vocab_size()};
  if (!request.prompt.empty()) inference::check(request, started.run.model);  // before weights are read
  const auto weights = inference::open_weights(started.run, started.ranks.world());
  const auto config = inference::read_generation_config(weights.folder(), weights.hf_config());
  apply_defaults(request, config, options, *tokenizer, started.run.model);
  inference::check(request, started.run.model);
  if (started.ranks.rank() == 0)
    for (const std::string& warning : config.not_applied) log::warning("{}", warning);
  // LongRoPE depends on the length.
  started.run.training.seq_length = static_cast<std::int64_t>(request.prompt.size()) + request.max_new_tokens;
  inference::InferenceModel network(std::move(started.run), std::move(started.ranks), weights);
  run_request(network, request, options.prompt, *tokenizer);
  return kExitDone;
}

}  // namespace colonnade::app
