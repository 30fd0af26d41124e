// `colonnade evaluate`: loss and perplexity of a checkpoint over data, or logits of given tokens.
#include "colonnade/inference/evaluate.h"

#include <ATen/ops/full.h>

#include "colonnade/base/error.h"
#include "colonnade/base/reason.h"
#include "colonnade/checkpoint/safetensors.h"
#include "colonnade/inference/weights.h"
#include "colonnade/job/start.h"
#include "extras.h"
#include "flags.h"
#include "verbs.h"

namespace colonnade::app {
namespace {

const std::vector<config::Extra> kExtras = {
    {"--tokens", 1,
     "safetensors file with input_ids [batch, sequence] and, where wanted, labels (-100: ignored)"},
    {"--logits-out", 1,
     "write logits [batch, sequence, vocabulary] and the loss of --tokens to this safetensors file"},
    {"--split-name", 1, "train, valid or test: the part of the data; default valid"},
};

struct Asked {
  std::string tokens, logits_out;
  data::Split split = data::Split::kValid;
};

Asked read_extras(config::Parsed& parsed) {
  Asked asked{extra(parsed, "--tokens"), extra(parsed, "--logits-out")};
  const auto fault = [&](std::string text) { parsed.faults.push_back(std::move(text)); };
  asked.split = read_split_name(parsed, data::Split::kValid);
  if (!asked.logits_out.empty() && asked.tokens.empty())
    fault("--logits-out: needs --tokens, which says of what; got none; write --tokens FILE");
  if (!asked.tokens.empty() && parsed.extras.contains("--split-name"))
    fault("--split-name must not meet --tokens, which takes the place of the data; got both; leave one out");
  if (std::string unwritable = why_not_writable("--logits-out", asked.logits_out, {asked.tokens});
      !unwritable.empty())
    fault(std::move(unwritable));
  return asked;
}

inference::Network build(job::Started started) {
  const auto weights = inference::open_weights(started.run, started.ranks.world());
  return {std::move(started.run), std::move(started.ranks), weights};
}

void print(const std::string& what, const inference::Score& score) {
  if (score.tokens == 0)
    fmt::print("{}: no token counts\n", what);
  else
    fmt::print("{}: loss {:.6f}  perplexity {:.6g}  tokens {}{}\n", what, score.loss, score.perplexity(),
               score.tokens, score.sop_loss ? fmt::format("  sop_loss {:.6f}", *score.sop_loss) : "");
}

inference::TokenRows read_tokens(const config::Model& model, const std::string& file) {
  const std::int64_t longest = inference::longest_sequence(model);
  if (model.bidirectional)
    return inference::read_masked_token_file(file, model.vocab_size, longest, model.num_tokentypes);
  const auto read = model.has_encoder() ? inference::read_encoder_token_file : inference::read_token_file;
  return read(file, model.vocab_size, longest);
}

/// Prints the score and rejects one that is not finite.
void finish(inference::Network& network, const std::string& what, const inference::Score& score) {
  if (network.ranks().rank() == 0) print(what, score);
  network.ranks().world().barrier("evaluate / end");
  inference::require_finite(score);
}

/// The speaker writes the file. Where it cannot, every rank throws its error. Collective.
void write_logits(inference::Network& network, const std::string& file, const inference::RowScore& scored) {
  std::string problem;
  try {
    if (scored.logits.defined())
      checkpoint::write_safetensors(
          file, {{"logits", scored.logits}, {"loss", at::full({1}, scored.score.loss, at::kFloat)}});
  } catch (const std::exception& error) {
    problem = reason_of(error);
  }
  const auto problems = network.ranks().world().all_gather_text(problem, "evaluate / logits written");
  const std::string& told = problems[static_cast<std::size_t>(network.speaker())];
  if (!told.empty())
    throw ConfigError(
        fmt::format("--logits-out must be written; got an error: {}; mend that or name another file", told));
}

void evaluate_tokens(job::Started started, const Asked& asked) {
  const auto rows = read_tokens(started.run.model, asked.tokens);
  inference::Network network = build(std::move(started));
  const auto scored = inference::score_rows(network, rows, !asked.logits_out.empty());
  if (!asked.logits_out.empty()) {
    inference::require_finite(scored.score);  // a failed evaluation leaves no file
    write_logits(network, asked.logits_out, scored);
  }
  finish(network, asked.tokens, scored.score);
}

void evaluate_data(job::Started started, const Asked& asked) {
  const auto split = inference::open_split(started.run, asked.split);
  inference::Network network = build(std::move(started));
  const auto score = inference::score_data(network, *split.batches, split.samples);
  finish(network,
         fmt::format("{} of {} ({} samples)", data::kSplitNames[static_cast<std::size_t>(asked.split)],
                     split.batches->samples().name(), split.samples),
         score);
}

}  // namespace

Offers evaluate_offers() { return {{"evaluate", "", kExtras, config::Use::kEvaluateData}}; }

int evaluate(const Arguments& arguments) {
  if (print_verb_help(arguments,
                      {"evaluate --load DIR [--tokens FILE [--logits-out FILE] | --split-name NAME]", kExtras,
                       config::Use::kEvaluateData}))
    return kExitDone;
  config::Parsed parsed = read_settings(arguments, kExtras, config::Use::kEvaluateData);
  const bool tokens = parsed.extras.contains("--tokens");
  const config::Use use = tokens ? config::Use::kEvaluateTokens : config::Use::kEvaluateData;
  refuse_unread_settings(parsed, use, tokens ? "evaluate --tokens" : "evaluate");
  const Asked asked = read_extras(parsed);
  config::require_none(parsed.faults);
  inference::take_settings(parsed.run, use);
  job::Started started = job::start(std::move(parsed.run), rules::Purpose::kModel);
  asked.tokens.empty() ? evaluate_data(std::move(started), asked)
                       : evaluate_tokens(std::move(started), asked);
  return kExitDone;
}

}  // namespace colonnade::app
