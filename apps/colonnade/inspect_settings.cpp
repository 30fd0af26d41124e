// See inspect_settings.h.
#include "inspect_settings.h"

#include <algorithm>
#include <array>

#include "colonnade/base/error.h"
#include "colonnade/config/use.h"
#include "colonnade/data/batches.h"
#include "colonnade/job/prepare.h"
#include "colonnade/rules/no_effect.h"
#include "extras.h"
#include "flags.h"

namespace colonnade::app {
namespace {

const std::vector<config::Extra> kExtras = {
    {"--split-name", 1, "train, valid or test: whose samples; default train"},
    {"--samples", 1,
     "samples that the run asks for; default what its settings say, else those shown and before"},
    {"--from", 1, "the first sample to show; default 0"},
    {"--show", 1, "how many samples to show; default 3"},
    {"--show-tokens", 1, "how many tokens of a piece of a sample to show; default 16"},
    {"--check-tokens", 0,
     "read every token: the highest id, ids beyond the vocabulary, documents without their end, equal documents"},
    {"--longer-than", 1, "count documents of more tokens than this"},
    {"--json", 1, "write the same as JSON to this file"},
};

/// Data paths in front of all flags are those of --data-path.
Arguments with_data_path(const Arguments& arguments, std::vector<std::string>& faults) {
  if (arguments.empty() || arguments[0].starts_with("--")) return arguments;
  Arguments words{"--data-path"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const auto again = std::find_if(arguments.begin(), arguments.end(), [](const std::string& word) {
    const auto match = word.starts_with("--") ? config::find(word.substr(0, word.find('='))) : std::nullopt;
    return match && match->setting->key == "data_path";
  });
  if (again != arguments.end())
    faults.push_back(fmt::format("{} must not meet data paths in front; got {} too; leave one of them out",
                                 *again, arguments[0]));
  return words;
}

std::int64_t number(config::Parsed& parsed, const std::string& flag, std::int64_t otherwise,
                    std::int64_t least) {
  const std::int64_t value = extra_number(parsed, flag, otherwise);
  if (parsed.extras.contains(flag) && value < least)
    parsed.faults.push_back(
        fmt::format("{} must be at least {}; got {}; write e.g. {} {}", flag, least, value, flag, least));
  return value;
}

InspectOptions read_extras(config::Parsed& parsed) {
  InspectOptions options{.json = extra(parsed, "--json")};
  options.split = read_split_name(parsed, data::Split::kTrain);
  options.samples = number(parsed, "--samples", 0, 1);
  options.from = number(parsed, "--from", options.from, 0);
  options.show = number(parsed, "--show", options.show, 0);
  options.show_tokens = number(parsed, "--show-tokens", options.show_tokens, 1);
  options.longer_than = number(parsed, "--longer-than", 0, 1);
  options.check_tokens = parsed.extras.contains("--check-tokens");
  if (std::string unwritable = why_not_writable("--json", options.json); !unwritable.empty())
    parsed.faults.push_back(std::move(unwritable));
  return options;
}

bool per_split(const config::Data& d) {
  return !d.train_data_path.empty() || !d.valid_data_path.empty() || !d.test_data_path.empty();
}

bool is_cyclic(const config::Run& run) { return run.data.dataloader_type == "cyclic"; }

/// What was typed and does nothing, which neither the table of uses nor a rule between settings tells.
class Idle {
 public:
  Idle(const config::Parsed& parsed, const InspectOptions& options)
      : parsed_(parsed), run_(parsed.run), options_(options) {}

  std::vector<std::string> faults() {
    if (run_.training.seq_length == 0)
      without_samples();
    else
      with_samples();
    without_effect();
    if (!run_.data.mock_data) return std::move(faults_);
    for (const char* flag : {"--check-tokens", "--longer-than"})
      if (parsed_.extras.contains(flag))
        faults_.push_back(fmt::format("{}: reads data files; got --mock-data; leave it out", flag));
    return std::move(faults_);
  }

 private:
  /// A run accepts them with a note; who looks at samples wants to know why they are as they are.
  void without_effect() {
    for (const auto& [setting, why] : rules::without_companions(run_))
      if (config::reads(config::Use::kInspect, *setting) && config::typed(run_, setting->key))
        faults_.push_back(
            fmt::format("{}: {}; got {}; leave it out", setting->flag, why, config::text_of(run_, *setting)));
  }

  void without_samples() {
    for (const char* flag : {"--samples", "--from", "--show", "--show-tokens"}) own_needs(flag);
    if (!per_split(run_.data)) own_needs("--split-name");
    for (const config::Setting& s : config::schema())
      if (config::reads(config::Use::kInspect, s) && !about_contents(s)) needs(s.key, "--seq-length");
    for (const char* key : {"mock_data", "sft"})
      if (config::text_of(run_, config::setting(key)) == "true" && !config::typed(run_, key))
        faults_.push_back(fmt::format("--seq-length must be given with {}; got none; write --seq-length N",
                                      config::setting(key).flag));
    if (run_.data.tokenizer_type.empty() && !options_.check_tokens)
      needs("vocab_size", "--tokenizer-type or --check-tokens");
  }

  void with_samples() {
    const bool train = options_.split == data::Split::kTrain, valid = options_.split == data::Split::kValid;
    if (!run_.data.sft)
      for (const char* key : {"reset_position_ids", "reset_attention_mask"}) needs(key, "--sft");
    if (!valid)
      for (const char* key : {"full_validation", "multiple_validation_sets"})
        needs(key, "--split-name valid");
    if (valid && run_.training.full_validation && options_.samples > 0)
      faults_.push_back(
          "--samples must not be given where a validation is one pass of its data (--full-validation); got both; "
          "leave one of them out");
    if (options_.samples > 0) {
      for (const char* key : {"train_iters", "train_samples", "eval_iters", "eval_interval", "skip_train"})
        meets_samples(key);
      if (!is_cyclic(run_)) meets_samples("global_batch_size");
      return;
    }
    if (train) needs("eval_iters", "--split-name valid or test");
    if (!valid)
      for (const char* key : {"eval_interval", "skip_train"}) needs(key, "--split-name valid");
    if (!train && !(valid && run_.training.eval_interval))
      for (const char* key : {"train_iters", "train_samples"})
        needs(key, "--split-name train, or valid and --eval-interval");
    if (train && !run_.training.train_iters && !is_cyclic(run_))
      needs("global_batch_size", "--train-iters or --dataloader-type cyclic");
  }

  /// Of a data set itself, whatever samples are made of it.
  static bool about_contents(const config::Setting& s) {
    const bool of_tokenizer =
        s.group == "tokenizer" && s.key != "vocab_extra_ids" && s.key != "chat_template";
    return s.cls != config::Class::kImplemented || of_tokenizer || s.group == "checkpoints" ||
           s.key == "config" || s.key.ends_with("data_path") || s.key.ends_with("data_args_path");
  }

  void needs(const std::string& key, const char* needed) {
    if (config::typed(run_, key)) refuse(config::setting(key).flag, needed);
  }
  void own_needs(const char* flag) {
    if (parsed_.extras.contains(flag)) refuse(flag, "--seq-length");
  }
  void refuse(const std::string& flag, const char* needed) {
    faults_.push_back(
        fmt::format("{}: is read with {}; got none; add it, or leave {} out", flag, needed, flag));
  }
  void meets_samples(const std::string& key) {
    if (config::typed(run_, key))
      faults_.push_back(
          fmt::format("{} must not meet --samples, which says how many are asked for; got both; leave one of "
                      "them out",
                      config::setting(key).flag));
  }

  const config::Parsed& parsed_;
  const config::Run& run_;
  const InspectOptions& options_;
  std::vector<std::string> faults_;
};

/// Settles how many samples of the split are asked for: --samples, else what a run with these settings asks
/// for, else one. `batch`: its --global-batch-size, 0: not given.
void settle_samples(config::Run& run, InspectOptions& options, std::int64_t batch) {
  config::Training& t = run.training;
  const bool train = options.split == data::Split::kTrain;
  const bool counts_steps = options.samples == 0 && (!train || (t.train_iters && !t.train_samples));
  if (batch == 0 && (counts_steps || is_cyclic(run)))
    throw ConfigError(
        fmt::format("--global-batch-size must be given, as {}; got none; write --global-batch-size N{}",
                    is_cyclic(run) ? "an epoch of --dataloader-type cyclic is whole batches"
                                   : "that many samples are read in a step",
                    is_cyclic(run) ? "" : ", or --samples N"));
  t.global_batch_size = std::max<std::int64_t>(batch, 1);
  if (options.samples > 0) return;
  const bool said = !train || t.train_iters || t.train_samples;
  const std::optional<std::int64_t> asked =
      said ? data::sample_counts(t)[options.split_index()] : std::max<std::int64_t>(1, options.shown_end());
  options.one_pass = !asked;
  options.unsaid = !said;
  options.samples = asked.value_or(1);
  if (options.samples < 1)
    throw ConfigError(
        fmt::format("--samples must be given where the run asks for none; got a run that asks for no {} "
                    "samples; write --samples N",
                    options.split_name()));
}

}  // namespace

const std::vector<std::string>& paths_of(const config::Run& run, data::Split split) {
  const config::Data& d = run.data;
  const std::array own{&d.train_data_path, &d.valid_data_path, &d.test_data_path};
  return d.data_path.empty() ? *own.at(static_cast<std::size_t>(split)) : d.data_path;
}

const std::vector<config::Extra>& inspect_extras() { return kExtras; }

Inspection read_inspection(const Arguments& arguments) {
  std::vector<std::string> faults;
  config::Parsed parsed = read_settings(with_data_path(arguments, faults), kExtras, config::Use::kInspect);
  for (std::string& fault : faults) parsed.faults.push_back(std::move(fault));
  refuse_unread_settings(parsed, config::Use::kInspect, "data inspect");
  InspectOptions options = read_extras(parsed);
  config::Run& run = parsed.run;
  const std::int64_t batch = run.training.global_batch_size;
  job::prepare(run, rules::Purpose::kData, std::move(parsed.faults));
  if (!run.data.mock_data && paths_of(run, options.split).empty())
    throw ConfigError(fmt::format(
        "data must be named{}; got none; write `data inspect PREFIX`, or --config RUN/config.yaml",
        per_split(run.data) ? fmt::format(" for --split-name {}", options.split_name()) : ""));
  config::require_none(Idle(parsed, options).faults());
  if (run.training.seq_length > 0) settle_samples(run, options, batch);
  if (run.family == "t5" && !run.model.has_encoder()) run.model.encoder_num_layers = 1;  // so it is a T5
  return {std::move(run), std::move(options)};
}

}  // namespace colonnade::app
