// `colonnade evaluate`: loss and perplexity of a checkpoint over data, or logits of given tokens.
#include "colonnade/inference/evaluate.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <filesystem>

#include "colonnade/base/error.h"
#include "colonnade/checkpoint/safetensors.h"
#include "colonnade/config/help.h"
#include "colonnade/inference/weights.h"
#include "colonnade/job/start.h"
#include "extras.h"
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
  const std::string split = extra(parsed, "--split-name", "valid");
  const auto found = std::find(data::kSplitNames.begin(), data::kSplitNames.end(), split);
  if (found == data::kSplitNames.end())
    fault(fmt::format("--split-name: must be train, valid or test; got '{}'; write one of them", split));
  else
    asked.split = static_cast<data::Split>(found - data::kSplitNames.begin());
  if (!asked.logits_out.empty() && asked.tokens.empty())
    fault("--logits-out: needs --tokens, which says of what; got none; write --tokens FILE");
  if (!asked.tokens.empty() && parsed.extras.contains("--split-name"))
    fault("--split-name: must not meet --tokens, which takes the place of the data; got both; leave one out");
  if (asked.logits_out.empty()) return asked;
  const auto folder = std::filesystem::absolute(asked.logits_out).parent_path();
  if (!std::filesystem::is_directory(folder))
    fault(fmt::format("--logits-out: its folder must exist; got {}; create it", folder.string()));
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
    fmt::print("{}: loss {:.6f}  perplexity {:.6g}  tokens {}\n", what, score.loss, score.perplexity(),
               score.tokens);
}

/// Prints the score and refuses one that is not finite, after the speaker has written and printed.
void finish(inference::Network& network, const std::string& what, const inference::Score& score) {
  if (network.ranks().rank() == 0) print(what, score);
  network.ranks().world().barrier("evaluate / end");
  inference::require_finite(score);
}

void evaluate_tokens(job::Started started, const Asked& asked) {
  const auto rows = inference::read_token_file(asked.tokens, started.run.model.vocab_size,
                                               inference::longest_sequence(started.run.model));
  inference::Network network = build(std::move(started));
  const auto scored = inference::score_rows(network, rows, !asked.logits_out.empty());
  if (scored.logits.defined())
    checkpoint::write_safetensors(asked.logits_out, {{"logits", scored.logits},
                                                     {"loss", at::full({1}, scored.score.loss, at::kFloat)}});
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

Offers evaluate_offers() { return {{"evaluate", "", kExtras, true}}; }

int evaluate(const Arguments& arguments) {
  if (config::help_request(arguments)) {
    print_verb_help("evaluate --load DIR [--tokens FILE [--logits-out FILE] | --split-name NAME]", kExtras);
    return kExitDone;
  }
  config::Parsed parsed = read_settings(arguments, kExtras);
  refuse_settings_of_writing(parsed, "evaluate");
  const Asked asked = read_extras(parsed);
  config::require_none(parsed.faults);
  inference::take_settings(parsed.run);
  job::Started started = job::start(std::move(parsed.run), plan::Purpose::kModel);
  asked.tokens.empty() ? evaluate_data(std::move(started), asked)
                       : evaluate_tokens(std::move(started), asked);
  return kExitDone;
}

}  // namespace colonnade::app
