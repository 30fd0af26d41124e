// Resuming a run (--load without --finetune): which settings must stay and which may change.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/data/batches.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::job {

/// Resumes the settings that give sample indices and optimizer states their meaning: order and boundaries of
/// samples, weight of a token's loss, optimizer kind and decay rates, tokenizer. Settings that were not given
/// are copied from `state` (Snapshot::state); a given one that differs adds a fault with both values and the
/// fix. --no-load-optim releases those of the optimizer. A setting that the state lacks is not checked. The
/// precision is copied too, and may be given a new value. So is dropout, where --use-checkpoint-args replaces
/// a given value.
void resume_settings(config::Run& run, const nlohmann::json& state, const std::string& source,
                     std::vector<std::string>& faults);

/// The settings that choose a tokenizer.
inline constexpr const char* kTokenizerKeys[] = {"tokenizer_type",   "tokenizer_model",
                                                 "vocab_file",       "merge_file",
                                                 "tiktoken_pattern", "tiktoken_num_special_tokens"};

/// Sets the tokenizer of `run` to that of the `settings` from `source`, unless one of its settings is given
/// or
/// --no-use-tokenizer-model-from-checkpoint-args is. With --use-checkpoint-args it replaces a given one.
void resume_tokenizer(config::Run& run, const nlohmann::json& settings, const std::string& source);

/// Path of the file that defines the tokenizer's ids; "" when there is none, or when a rule reports it as
/// missing. Throws DataError for a folder without one.
std::string ids_file(const config::Data& data);

/// One sentence for each changed setting of a complete run that may change on resume (data, batch, precision,
/// regularization), with the effect of the change, also under --no-load-optim.
std::vector<std::string> changed_settings(const config::Run& run, const nlohmann::json& state);

/// Facts that decide the order of samples and follow from the requested number of samples, by split:
/// {"permuted" (Batches::permuted), "sets": [data::SampleOrder, ...]}. Stored in a checkpoint as "data".
nlohmann::json data_state(const data::Splits& splits);

/// A dataset whose number of tokens differs from that in a checkpoint, in some splits.
struct ChangedTokens {
  struct Part {
    std::string split;
    std::int64_t saved = 0, now = 0;
    friend bool operator==(const Part&, const Part&) = default;
  };
  std::string name;
  std::vector<Part> parts;
};

/// Datasets whose number of tokens under an unchanged path differs from `state`. Splits whose paths have
/// changed are left to changed_settings. `now`: data_state of the run.
std::vector<ChangedTokens> changed_tokens(const config::Run& run, const nlohmann::json& now,
                                          const nlohmann::json& state);

/// One sentence for each dataset whose sample order differs from `state` though its number of tokens does
/// not, and for each split with another permutation. Splits whose paths have changed are skipped.
std::vector<std::string> changed_orders(const config::Run& run, const nlohmann::json& now,
                                        const nlohmann::json& state);

/// `run` with every path made absolute: data, its cache, tokenizer, --save, --load, --pretrained-checkpoint,
/// --tensorboard-dir. Checkpoints and config.yaml store it, so that any working directory finds the files.
config::Run with_absolute_paths(config::Run run);

/// Key of the checksum of the chat template's text in tokenizer_state.
inline constexpr const char* kTemplateChecksum = "chat_template_xxh3_128";

/// Identity of the tokenizer in a checkpoint: {"type", "vocab_size", "bos_token_id", "eos_token_id",
/// "xxh3_128"}; "xxh3_128" is the checksum of its file where it has one. With --sft
/// "chat_template_xxh3_128" is that of the chat template's text. Null without a tokenizer.
nlohmann::json tokenizer_state(const config::Run& run, const tokenizers::Tokenizer* tokenizer);

/// Why the tokenizer of `run` differs from the one in `state`, with both named; "" when it is the same, or
/// when either side has none.
std::string tokenizer_fault(const config::Run& run, const nlohmann::json& state, const std::string& source);

/// Why the chat template's text differs from that in `state` although the settings name the same template; ""
/// when it is the same, or when `state` has no checksum of it.
std::string template_fault(const config::Run& run, const nlohmann::json& state, const std::string& source);

}  // namespace colonnade::job
