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

const std::vector<config::VerbFlag> kExtras = {
    {"--tokens", "FILE",
     "safetensors file with input_ids and optional labels [batch, sequence] (-100: ignored)"},
    {"--logits-out", "FILE",
     "write logits [batch, sequence, vocabulary] and the loss of --tokens to this safetensors file"},
    {"--split-name", "NAME", "data split to evaluate: train, valid or test; default valid"},
};

struct EvaluateOptions {
  std::string tokens, logits_out;
  data::Split split = data::Split::kValid;
};

EvaluateOptions read_extras(config::Parsed& parsed) {
  EvaluateOptions options{extra(parsed, "--tokens"), extra(parsed, "--logits-out")};
  const auto fault = [&](std::string text) { parsed.faults.push_back(std::move(text)); };
  options.split = read_split_name(parsed, data::Split::kValid);
  if (!options.logits_out.empty() && options.tokens.empty())
    fault("--logits-out needs --tokens; got none; add --tokens FILE");
  if (!options.tokens.empty() && parsed.extras.contains("--split-name"))
    fault("--split-name requires data, which --tokens replaces; got both; remove one");
  if (std::string unwritable = why_not_writable("--logits-out", options.logits_out, {options.tokens});
      !unwritable.empty())
    fault(std::move(unwritable));
  return options;
}

inference::InferenceModel build(job::StartedRun started) {
  const auto weights = inference::open_weights(started.run, started.ranks.world());
  return {std::move(started.run), std::move(started.ranks), weights};
}

void print(const std::string& what, const inference::Score& score) {
  if (score.tokens == 0)
    fmt::print("{}: all tokens are masked\n", what);
  else
    fmt::print("{}: loss {:.6f}  perplexity {:.6g}  tokens {}{}\n", what, score.loss, score.perplexity(),
               score.tokens, score.sop_loss ? fmt::format("  sop_loss {:.6f}", *score.sop_loss) : "");
}

/// Prints the score and rejects one that is not finite.
void finish(inference::InferenceModel& network, const std::string& what, const inference::Score& score) {
  if (network.ranks().rank() == 0) print(what, score);
  network.ranks().world().barrier("evaluate / end");
  inference::require_finite(score);
}

/// The leader writes the file; if it fails, every rank throws its error. Collective.
void write_logits(inference::InferenceModel& network, const std::string& file,
                  const inference::RowScore& scored) {
  std::string problem;
  try {
    if (scored.logits.defined())
      checkpoint::write_safetensors(
          file, {{"logits", scored.logits}, {"loss", at::full({1}, scored.score.loss, at::kFloat)}});
  } catch (const std::exception& error) {
    problem = reason_of(error);
  }
  const auto problems = network.ranks().world().all_gather_text(problem, "evaluate / logits written");
  const std::string& leader_problem = problems[static_cast<std::size_t>(network.leader())];
  if (!leader_problem.empty())
    throw ConfigError(fmt::format(
        "--logits-out must be written; got an error: {}; fix it or name another file", leader_problem));
}

void evaluate_tokens(job::StartedRun started, const EvaluateOptions& options) {
  const config::Model& model = started.run.model;
  const auto rows = inference::read_token_file(options.tokens, model, inference::longest_sequence(model));
  started.run.training.seq_length = rows.tokens.size(1);  // for LongRoPE
  inference::InferenceModel network = build(std::move(started));
  const auto scored = inference::score_rows(network, rows, !options.logits_out.empty());
  if (!options.logits_out.empty()) {
    inference::require_finite(scored.score);  // a failed evaluation leaves no file
    write_logits(network, options.logits_out, scored);
  }
  finish(network, options.tokens, scored.score);
}

void evaluate_data(job::StartedRun started, const EvaluateOptions& options) {
  const auto split = inference::open_split(started.run, options.split);
  std::int64_t& length = started.run.training.seq_length;
  if (length == 0) length = started.run.model.max_position_embeddings;
  inference::InferenceModel network = build(std::move(started));
  const auto score = inference::score_data(network, *split.batches, split.samples);
  finish(network,
         fmt::format("{} of {} ({} samples)", data::kSplitNames[static_cast<std::size_t>(options.split)],
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
  reject_unread_settings(parsed, use, tokens ? "evaluate --tokens" : "evaluate");
  const EvaluateOptions options = read_extras(parsed);
  config::require_none(parsed.faults);
  inference::adopt_settings(parsed.run, use);
  job::StartedRun started = job::start(std::move(parsed.run), rules::Purpose::kModel);
  options.tokens.empty() ? evaluate_data(std::move(started), options)
                         : evaluate_tokens(std::move(started), options);
  return kExitDone;
}

}  // namespace colonnade::app
