// See inspect_settings.h.
#include "inspect_settings.h"

#include <algorithm>
#include <array>

#include "colonnade/base/error.h"
#include "colonnade/config/batch_schedule.h"
#include "colonnade/config/stacks.h"
#include "colonnade/config/use.h"
#include "colonnade/data/batches.h"
#include "colonnade/job/prepare.h"
#include "colonnade/rules/no_effect.h"
#include "extras.h"
#include "flags.h"

namespace colonnade::app {
namespace {

const std::vector<config::VerbFlag> kExtras = {
    {"--split-name", "NAME", "split to inspect: train, valid or test; default: train"},
    {"--samples", "N",
     "number of samples; default: as the run's settings say, else up to the last sample shown"},
    {"--from", "N", "first sample to show; default: 0"},
    {"--show", "N", "number of samples to show; default: 3"},
    {"--show-tokens", "N", "tokens to show per part of a sample; default: 16"},
    {"--check-tokens", "",
     "read every token and report the largest id, out-of-vocabulary ids, documents without end, duplicate documents"},
    {"--longer-than", "N", "count documents with more tokens than this"},
    {"--json", "FILE", "write the result as JSON to this file"},
};

/// Positional data paths before all flags become --data-path.
Arguments with_data_path(const Arguments& arguments, std::vector<std::string>& faults) {
  if (arguments.empty() || arguments[0].starts_with("--")) return arguments;
  Arguments words{"--data-path"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  const auto again = std::find_if(arguments.begin(), arguments.end(), [](const std::string& word) {
    const auto match = word.starts_with("--") ? config::find(word.substr(0, word.find('='))) : std::nullopt;
    return match && match->setting->key == "data_path";
  });
  if (again != arguments.end())
    faults.push_back(
        fmt::format("{} must not be used with positional data paths; got {} too; remove one of them", *again,
                    arguments[0]));
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

/// Typed flags without effect that neither the table of uses nor the rules report.
class NoEffectFlags {
 public:
  NoEffectFlags(const config::Parsed& parsed, const InspectOptions& options)
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
        faults_.push_back(fmt::format("{} requires data files; got --mock-data; remove it", flag));
    return std::move(faults_);
  }

 private:
  /// A run accepts these with a note; an inspection rejects them, since they explain unexpected samples.
  void without_effect() {
    for (const auto& [setting, why] : rules::without_prerequisites(run_))
      if (config::reads(config::Use::kInspect, *setting) && config::is_from_command_line(run_, setting->key))
        faults_.push_back(fmt::format("{} {}; got {}; remove the flag", setting->flag, why,
                                      config::text_of(run_, *setting)));
  }

  void without_samples() {
    for (const char* flag : {"--samples", "--from", "--show", "--show-tokens"}) own_requires_seq_length(flag);
    if (!per_split(run_.data)) own_requires_seq_length("--split-name");
    for (const config::Setting& s : config::schema())
      if (config::reads(config::Use::kInspect, s) && !concerns_data_set(s)) needs(s.key, "--seq-length");
    for (const char* key : {"mock_data", "sft"})
      if (config::text_of(run_, config::setting(key)) == "true" && !config::is_from_command_line(run_, key))
        faults_.push_back(fmt::format("--seq-length must be given with {}; got none; write --seq-length N",
                                      config::setting(key).flag));
    if (run_.data.tokenizer_type.empty() && !options_.check_tokens)
      needs("vocab_size", "--tokenizer-type or --check-tokens");
  }

  void with_samples() {
    const bool train = options_.split == data::Split::kTrain, valid = options_.split == data::Split::kValid;
    if (!run_.data.sft)
      for (const char* key :
           {"reset_position_ids", "reset_attention_mask", "dataloader_inter_document_masking"})
        needs(key, "--sft");
    if (!valid)
      for (const char* key : {"full_validation", "multiple_validation_sets"})
        needs(key, "--split-name valid");
    if (valid && run_.training.full_validation && options_.samples > 0)
      faults_.push_back(
          "--samples must not be used with --full-validation, which reads all data once; got both; remove one of "
          "them");
    if (options_.samples > 0) {
      for (const char* key : {"train_iters", "train_samples", "eval_iters", "eval_interval", "skip_train",
                              "start_eval_at_iter"})
        excludes_samples(key);
      excludes_samples("rampup_batch_size");
      if (!is_cyclic(run_)) excludes_samples("global_batch_size");
      if (!is_cyclic(run_)) excludes_samples("step_batch_size_schedule");
      if (!is_cyclic(run_) || train) excludes_samples("eval_global_batch_size");
      return;
    }
    if (train)
      for (const char* key : {"eval_iters", "eval_global_batch_size"})
        needs(key, "--split-name valid or test");
    if (!valid)
      for (const char* key : {"eval_interval", "skip_train", "start_eval_at_iter"})
        needs(key, "--split-name valid");
    if (!train && !(valid && run_.training.eval_interval))
      for (const char* key : {"train_iters", "train_samples"})
        needs(key, "--split-name train, or valid and --eval-interval");
    if (!valid || !run_.training.train_samples)
      needs("rampup_batch_size", "--split-name valid and --train-samples");
    if (train && !run_.training.train_iters && !is_cyclic(run_))
      for (const char* key : {"global_batch_size", "step_batch_size_schedule"})
        needs(key, "--train-iters or --dataloader-type cyclic");
  }

  /// Whether a setting concerns the data set itself, not the samples built from it.
  static bool concerns_data_set(const config::Setting& s) {
    const bool of_tokenizer =
        s.group == "tokenizer" && s.key != "vocab_extra_ids" && s.key != "chat_template";
    return s.cls != config::Class::kImplemented || of_tokenizer || s.group == "checkpoints" ||
           s.key == "config" || s.key.ends_with("data_path") || s.key.ends_with("data_args_path");
  }

  void needs(const std::string& key, const char* needed) {
    if (config::is_from_command_line(run_, key)) require_companion(config::setting(key).flag, needed);
  }
  void own_requires_seq_length(const char* flag) {
    if (parsed_.extras.contains(flag)) require_companion(flag, "--seq-length");
  }
  void require_companion(const std::string& flag, const char* needed) {
    faults_.push_back(fmt::format("{} requires {}; got none; add it, or remove {}", flag, needed, flag));
  }
  void excludes_samples(const std::string& key) {
    if (config::is_from_command_line(run_, key))
      faults_.push_back(fmt::format(
          "{} must not be used with --samples, which sets the number of samples; got both; remove one of "
          "them",
          config::setting(key).flag));
  }

  const config::Parsed& parsed_;
  const config::Run& run_;
  const InspectOptions& options_;
  std::vector<std::string> faults_;
};

/// Sets the number of samples of the split: --samples, else that of a run with these settings, else enough
/// for those shown. `batch`: --global-batch-size; 0: not given.
void set_samples(config::Run& run, InspectOptions& options, std::int64_t batch) {
  config::Training& t = run.training;
  const bool train = options.split == data::Split::kTrain;
  const bool counts_steps = options.samples == 0 && (!train || (t.train_iters && !t.train_samples));
  if (batch == 0 && (counts_steps || is_cyclic(run)))
    throw ConfigError(
        fmt::format("--global-batch-size must be given: {}; got none; write --global-batch-size N{}",
                    is_cyclic(run) ? "an epoch of --dataloader-type cyclic consists of full batches"
                                   : "a step reads that many samples",
                    is_cyclic(run) ? "" : ", or --samples N"));
  t.global_batch_size = std::max<std::int64_t>(batch, 1);
  if (options.samples > 0) return;
  const bool has_length = !train || t.train_iters || t.train_samples;
  const std::optional<std::int64_t> asked = has_length ? data::sample_counts(t)[options.split_index()]
                                                       : std::max<std::int64_t>(1, options.shown_end());
  options.one_pass = !asked;
  options.uses_default_samples = !has_length;
  options.samples = asked.value_or(1);
  if (options.samples < 1)
    throw ConfigError(fmt::format("--samples must be given; got a run without {} samples; write --samples N",
                                  options.split_name()));
}

}  // namespace

const std::vector<std::string>& paths_of(const config::Run& run, data::Split split) {
  const config::Data& d = run.data;
  const std::array own{&d.train_data_path, &d.valid_data_path, &d.test_data_path};
  return d.data_path.empty() ? *own.at(static_cast<std::size_t>(split)) : d.data_path;
}

const std::vector<config::VerbFlag>& inspect_extras() { return kExtras; }

Inspection read_inspection(const Arguments& arguments) {
  std::vector<std::string> faults;
  config::Parsed parsed = read_settings(with_data_path(arguments, faults), kExtras, config::Use::kInspect);
  for (std::string& fault : faults) parsed.faults.push_back(std::move(fault));
  reject_unread_settings(parsed, config::Use::kInspect, "data inspect");
  InspectOptions options = read_extras(parsed);
  config::Run& run = parsed.run;
  std::int64_t batch = run.training.global_batch_size;
  job::prepare(run, rules::Purpose::kData, std::move(parsed.faults));
  if (const std::int64_t last = config::final_size_of_step_schedule(run.training); last > 0) batch = last;
  if (!run.data.mock_data && paths_of(run, options.split).empty())
    throw ConfigError(fmt::format(
        "data paths must be given{}; got none; write `data inspect PREFIX`, or --config RUN/config.yaml",
        per_split(run.data) ? fmt::format(" for --split-name {}", options.split_name()) : ""));
  config::require_none(NoEffectFlags(parsed, options).faults());
  if (run.training.seq_length > 0) set_samples(run, options, batch);
  if (run.model_type == "t5" && !config::has_several_stacks(run.model))
    run.model.encoder_num_layers = 1;  // marks the model as T5
  return {std::move(run), std::move(options)};
}

}  // namespace colonnade::app
