// A run that goes on (--load without --finetune): what it keeps as it was, and what may change.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/data/batches.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::job {

/// Settings that decide what sample numbers and optimizer states mean: order and cut of the samples, what a
/// token's loss weighs, kind and decay rates of the optimizer, tokenizer. Those that were not given are taken
/// over from `state` (Snapshot::state); each given one that differs is a sentence in `faults` with both
/// values and the way out. --no-load-optim frees those of the optimizer. A setting the state lacks is free.
/// The precision is taken over too, and may be given otherwise. Dropout is taken over; with
/// --use-checkpoint-args it replaces a given one.
void keep_settings(config::Run& run, const nlohmann::json& state, const std::string& source,
                   std::vector<std::string>& faults);

/// The settings that choose a tokenizer.
inline constexpr const char* kTokenizerKeys[] = {"tokenizer_type",   "tokenizer_model",
                                                 "vocab_file",       "merge_file",
                                                 "tiktoken_pattern", "tiktoken_num_special_tokens"};

/// Sets the tokenizer of `run` to that of the `settings` in `source`, unless one of its settings is given, or
/// --no-use-tokenizer-model-from-checkpoint-args. With --use-checkpoint-args it replaces a given one.
void keep_tokenizer(config::Run& run, const nlohmann::json& settings, const std::string& source);

/// The file that decides the ids of the tokenizer; "": none, or a rule says that it is missing. Throws
/// DataError for a folder without one.
std::string ids_file(const config::Data& data);

/// A sentence for each setting of a complete run that may change while it goes on, and has: data, batch,
/// precision, regularisation. It says what the change does, also under --no-load-optim.
std::vector<std::string> changed_settings(const config::Run& run, const nlohmann::json& state);

/// What decides the order of samples and follows the number of samples asked for: by split, {"permuted"
/// (Batches::permuted), "sets": [data::SampleOrder, ...]}. A checkpoint keeps it as "data".
nlohmann::json data_state(const data::Splits& splits);

/// A data set that has another number of tokens than in a checkpoint, in some splits.
struct ChangedTokens {
  struct Part {
    std::string split;
    std::int64_t was = 0, is = 0;
    friend bool operator==(const Part&, const Part&) = default;
  };
  std::string name;
  std::vector<Part> parts;
};

/// The data sets with other tokens than `state` says under the same path. None of a split whose paths have
/// changed: changed_settings says that. `now`: data_state of the run.
std::vector<ChangedTokens> changed_tokens(const config::Run& run, const nlohmann::json& now,
                                          const nlohmann::json& state);

/// A sentence for each data set whose samples come in another order than `state` says, though its tokens are
/// as many, and for each split that is permuted otherwise. None of a split whose paths have changed.
std::vector<std::string> changed_orders(const config::Run& run, const nlohmann::json& now,
                                        const nlohmann::json& state);

/// `run` with every path made absolute: data, its cache, tokenizer, --save, --load, --pretrained-checkpoint,
/// --tensorboard-dir. What checkpoints and config.yaml keep, so that another working folder finds the same
/// files.
config::Run with_absolute_paths(config::Run run);

/// The key of the checksum of a chat template's text in what a checkpoint keeps of the tokenizer.
inline constexpr const char* kTemplateSum = "chat_template_xxh3_128";

/// What a checkpoint keeps of the tokenizer: {"type", "vocab_size", "bos_token_id", "eos_token_id",
/// "xxh3_128"}, the last one of the bytes of its file where it has one; with --sft "chat_template_xxh3_128",
/// of the text of the template that messages are written by. Null without a tokenizer.
nlohmann::json tokenizer_state(const config::Run& run, const tokenizers::Tokenizer* tokenizer);

/// Why the tokenizer of `run` is not the one that `state` keeps, both named; "" when it is, or when either
/// names none.
std::string tokenizer_fault(const config::Run& run, const nlohmann::json& state, const std::string& source);

/// Why messages are not written as `state` keeps it though the settings name the same template: its text is
/// another one; "" when it is the same, or when `state` says nothing of it.
std::string template_fault(const config::Run& run, const nlohmann::json& state, const std::string& source);

}  // namespace colonnade::job
