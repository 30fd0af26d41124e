// From what was typed to a complete, checked run: what other files say, what follows, what is wrong.
#pragma once

#include <memory>

#include "colonnade/config/run.h"
#include "colonnade/data/samples/gpt/gpt_batches.h"
#include "colonnade/rules/rules.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::job {

/// Completes `run` in place (its world size is set): the words of files with data paths, model settings from
/// --pretrained-checkpoint's or --load's config that were not given or that it replaces
/// (config::checkpoint_wins), the parallel sizes of --use-mp-args-from-checkpoint-args, what a run that goes
/// on keeps (continued.h), the tokenizer of the checkpoint or folder that weights come from where none is
/// named, the vocabulary from the tokenizer, derived settings. For data no checkpoint is opened where the run
/// says all that decides samples. Throws ConfigError with everything that is wrong, `faults` of the command
/// line included. For training it is wrong that --save holds checkpoints, unless --load continues one of
/// them, and that --load holds none but something else (foreign.h).
void prepare(config::Run& run, rules::Purpose purpose, std::vector<std::string> faults = {});

/// Fills `run` with the model of --pretrained-checkpoint and what a run that goes on from --load keeps, for
/// plans: weights are not read, and of a Hugging Face folder config.json is enough. A --load without a
/// checkpoint is a new run. Faults go to `faults`; throws DataError where a folder holds no model.
void describe_model(config::Run& run, std::vector<std::string>& faults);

/// The tokenizer of the settings; null when none is named.
std::unique_ptr<tokenizers::Tokenizer> tokenizer_of(const config::Run& run);

/// Takes a vocabulary that is not given from the tokenizer of the settings, and adds a fault for a tokenizer
/// that does not fit the run. Throws DataError for a file of it that is missing or damaged.
void check_tokenizer(config::Run& run, std::vector<std::string>& faults);

/// What a gpt's data must know of the tokenizer, which may be null: its ids, and with --fim-data itself.
data::TokenIds token_ids(const config::Run& run, const tokenizers::Tokenizer* tokenizer);

/// The batches of the run's family; `tokenizer` may be null. Throws as
/// data::open_gpt_batches and data::open_t5_batches.
data::Splits open_batches(const config::Run& run, const tokenizers::Tokenizer* tokenizer,
                          const data::Wanted& wanted = {});

}  // namespace colonnade::job
