// What a sample is made of, for people: `colonnade data inspect` and `colonnade data audit`.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/data/batches.h"
#include "colonnade/data/samples/gpt/fill_in_the_middle.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::data {

/// Tells of the samples of one run. A stretch of tokens is {"length", "tokens", "text"}: its first `shown`
/// tokens, and their text where there is a tokenizer.
///   "pieces"   of any sample: [{"sequence", "offset", and a stretch}], as the data have them
/// and where the run reads something else than them, that too:
///   BERT             "first", and with a sentence order "second" and "swapped": the parts with cls and sep,
///                    and whether the first is what came second in the text;
///                    "hidden": [{"at", "token", "shown", "text"}]: place, what it was, what stands there
///   T5               "encoder", "decoder": the inputs with sentinels; "gaps": [{"sentinel", and a stretch}],
///                    told apart by the first of each sentinel: a text that holds one itself moves the
///                    borders
///   --sft            "answers": [{"at", and a stretch}]: what has a loss, from token `at` of the sample on
///   --fim-data       "written": [{"part": text|prefix|suffix|middle|pad, and a stretch}] in the order of the
///                    sample, its last label included; text is what was not cut. The id that begins a part is
///                    not in it. Where the suffix comes first (--fim-spm-rate) the prefix is empty, and
///                    "middle" is the prefix and the middle.
class SampleDescriber {
 public:
  /// `run`: that the batches were opened with. `tokenizer` may be null; it must stay. Throws ConfigError as
  /// t5_ids and fim_rules.
  SampleDescriber(const config::Run& run, const tokenizers::Tokenizer* tokenizer, std::int64_t shown);

  /// Adds what is said above of sample `number` of the run. Throws as batches.get, and DataError for ids that
  /// the tokenizer does not have.
  void add(const Batches& batches, std::int64_t number, nlohmann::ordered_json& about) const;

 private:
  using Json = nlohmann::ordered_json;
  using Ids = std::span<const std::int64_t>;

  void add_stretch(Ids ids, Json& about) const;
  [[nodiscard]] Json stretch(Ids ids) const;
  [[nodiscard]] std::string text_of(Ids ids) const;
  void add_pair(const HostBatch& batch, Json& about) const;
  void add_gaps(const HostBatch& batch, Json& about) const;
  void add_answers(const HostBatch& batch, Json& about) const;
  void add_written(const SampleSource& source, std::int64_t sample, Json& about) const;

  const tokenizers::Tokenizer* tokenizer_;
  std::int64_t shown_;
  std::int64_t seq_length_;
  bool pair_ = false, chat_ = false;
  std::vector<std::int64_t> sentinels_;
  std::optional<FimRules> fim_;
};

/// What SampleDescriber::add has added, as lines.
std::string described_text(const nlohmann::ordered_json& about);

}  // namespace colonnade::data
