// Turns given settings into a complete, checked run: settings from other files, derived settings, faults.
#pragma once

#include <memory>

#include "colonnade/config/run.h"
#include "colonnade/data/samples/gpt/gpt_batches.h"
#include "colonnade/rules/rules.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::job {

/// Completes `run` in place (its world size is set): words from files with data paths; model settings from
/// --pretrained-checkpoint or --load that were not given or that the checkpoint replaces
/// (config::checkpoint_wins); the parallel sizes of --use-mp-args-from-checkpoint-args; resumed settings
/// (resume_policy.h); where none is named, the tokenizer of the checkpoint or folder with the weights; the
/// vocabulary from the tokenizer; derived settings. For Purpose::kData no checkpoint is opened where `run`
/// gives every setting that decides samples. Throws ConfigError with all faults, `faults` of the command line
/// included. Faults of training: --save holds checkpoints and --load does not resume them; --load holds no
/// checkpoint but other files (folder_checks.h).
void prepare(config::Run& run, rules::Purpose purpose, std::vector<std::string> faults = {});

/// Fills `run` with the model of --pretrained-checkpoint and the resumed settings of --load, for plans: no
/// weights are read, and config.json of a Hugging Face folder is enough. A --load without a checkpoint is a
/// new run. Faults are added to `faults`; throws DataError where a folder holds no model.
void describe_model(config::Run& run, std::vector<std::string>& faults);

/// The tokenizer of the settings; null when none is named.
std::unique_ptr<tokenizers::Tokenizer> tokenizer_of(const config::Run& run);

/// Sets the vocabulary size from the tokenizer where it is not given, and adds a fault for a tokenizer that
/// does not fit the run. Throws DataError for a tokenizer file that is missing or damaged.
void check_tokenizer(config::Run& run, std::vector<std::string>& faults);

/// Token ids that the data of a GPT needs, with --fim-data also the tokenizer. `tokenizer` may be null.
data::TokenIds token_ids(const config::Run& run, const tokenizers::Tokenizer* tokenizer);

/// The batches of the run's model; `tokenizer` may be null. Throws as data::open_gpt_batches and
/// data::open_t5_batches.
data::Splits open_batches(const config::Run& run, const tokenizers::Tokenizer* tokenizer,
                          const data::DataRequest& wanted = {});

}  // namespace colonnade::job
