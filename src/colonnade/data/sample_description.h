// Human-readable description of samples for `colonnade data inspect` and `colonnade data audit`.
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

/// Describes samples of one run as JSON. A span of tokens has the keys "length", "tokens" and "text": its
/// first `shown` tokens, and their text if there is a tokenizer.
///   "pieces"   of any sample: [{"sequence", "offset", span}], the spans as stored in the data
/// and if the model reads something else, also its input:
///   BERT             "first", and with sentence order "second" and "swapped": the segments with cls and sep,
///   and
///                    whether the first segment came second in the text;
///                    "hidden": [{"at", "token", "shown", "text"}]: the masked tokens with position, original
///                    id and id in the input
///   T5               "encoder", "decoder": the inputs with sentinels; "gaps": [{"sentinel", span}], the
///   masked
///                    spans. A span ends at the first occurrence of the next sentinel, so a text that
///                    contains sentinels itself moves the boundaries.
///   --sft            "answers": [{"at", span}]: the tokens with a loss, from token `at` of the sample
///   --fim-data       "written": [{"part": text|prefix|suffix|middle|pad, span}] in sample order, including
///   the
///                    last label; "text" was not split. The id that starts a part is not included. If the
///                    suffix comes first (--fim-spm-rate), the prefix is empty and "middle" is prefix and
///                    middle.
class SampleDescriber {
 public:
  /// `run` must be the one that the batches were opened with. `tokenizer` may be null and must outlive this
  /// object. Throws ConfigError like t5_ids and fim_rules.
  SampleDescriber(const config::Run& run, const tokenizers::Tokenizer* tokenizer, std::int64_t shown);

  /// Adds the description of sample `number` of the run to `about`. Throws like batches.get, and DataError
  /// for ids unknown to the tokenizer.
  void add(const Batches& batches, std::int64_t number, nlohmann::ordered_json& about) const;

 private:
  using Json = nlohmann::ordered_json;
  using Ids = std::span<const std::int64_t>;

  void add_span(Ids ids, Json& about) const;
  [[nodiscard]] Json span(Ids ids) const;
  [[nodiscard]] std::string text_of(Ids ids) const;
  void add_bert(const HostBatch& batch, Json& about) const;
  void add_t5(const HostBatch& batch, Json& about) const;
  void add_answers(const HostBatch& batch, Json& about) const;
  void add_fim(const SampleSource& source, std::int64_t sample, Json& about) const;

  const tokenizers::Tokenizer* tokenizer_;
  std::int64_t shown_;
  std::int64_t seq_length_;
  bool is_bert_ = false, is_chat_ = false;
  std::vector<std::int64_t> sentinels_;
  std::optional<FimRules> fim_;
};

/// Text lines for the JSON of SampleDescriber::add.
std::string description_text(const nlohmann::ordered_json& about);

}  // namespace colonnade::data
