// See t5_ids.h.
#include "colonnade/data/samples/t5/t5_ids.h"

#include <algorithm>

#include "colonnade/base/error.h"

namespace colonnade::data {
namespace {

T5Ids ids_of_numbers(std::int64_t vocab_size, std::int64_t vocab_extra_ids) {
  const std::int64_t text = vocab_size - vocab_extra_ids;
  if (vocab_extra_ids < 1 || text < 2)
    throw ConfigError(fmt::format(
        "--vocab-extra-ids: the last ids of the vocabulary must be sentinels, 1 to {} of {}; got {}; set one per masked "
        "span of a sample, 100 as in T5, and a --vocab-size that includes them",
        std::max<std::int64_t>(vocab_size - 2, 1), vocab_size, vocab_extra_ids));
  T5Ids ids{.vocab_size = vocab_size, .text_end = text, .bos = text - 1, .eos = text - 1, .sentinels = {}};
  for (std::int64_t id = text; id < vocab_size; ++id) ids.sentinels.push_back(id);
  return ids;
}

std::vector<std::int64_t> sentinels_of(const tokenizers::Tokenizer& tokenizer, std::int64_t wanted) {
  std::vector<std::int64_t> sentinels;
  std::int64_t next = tokenizer.vocab_size();
  for (std::int64_t i = 0; wanted == 0 || i < wanted; ++i) {
    const std::int64_t piece = tokenizer.id_of(fmt::format("<extra_id_{}>", i));
    if (piece < 0 && wanted == 0) break;
    sentinels.push_back(piece >= 0 ? piece : next++);
  }
  return sentinels;
}

}  // namespace

T5Ids t5_ids(const tokenizers::Tokenizer* tokenizer, std::int64_t vocab_size, std::int64_t vocab_extra_ids) {
  if (tokenizer == nullptr || tokenizer->special().eos < 0)
    return ids_of_numbers(vocab_size, vocab_extra_ids);
  const tokenizers::SpecialIds special = tokenizer->special();
  T5Ids ids{.vocab_size = vocab_size, .eos = special.eos, .pad = special.pad, .sentinels = {}};
  ids.bos = special.bos >= 0 ? special.bos : special.pad >= 0 ? special.pad : special.eos;
  ids.sentinels = sentinels_of(*tokenizer, vocab_extra_ids);
  if (ids.sentinels.empty())
    throw ConfigError(
        "--vocab-extra-ids: the tokenizer must have pieces <extra_id_0>, <extra_id_1>, ... or sentinels must be added; "
        "got 0; set one per masked span of a sample, 100 as in T5");
  const std::int64_t needed = std::max(tokenizer->vocab_size(), std::ranges::max(ids.sentinels) + 1);
  if (vocab_size > 0 && vocab_size < needed)
    throw ConfigError(fmt::format(
        "--vocab-size must hold the tokenizer's {} ids and the sentinels after them, {} in all; got {}; set --vocab-size "
        "{}",
        tokenizer->vocab_size(), needed, vocab_size, needed));
  return ids;
}

}  // namespace colonnade::data
