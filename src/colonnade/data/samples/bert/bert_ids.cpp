// See bert_ids.h.
#include "colonnade/data/samples/bert/bert_ids.h"

#include <fmt/ranges.h>

#include <array>
#include <string>
#include <utility>

#include "colonnade/base/error.h"

namespace colonnade::data {
namespace {

BertIds ids_of_numbers(std::int64_t vocab_size) {
  if (vocab_size < 6)
    throw ConfigError(fmt::format(
        "--vocab-size must be at least 6, since the last four ids of numeric text are BERT's pad, cls, sep and mask; "
        "got {}; raise it",
        vocab_size));
  return {.vocab_size = vocab_size,
          .text_end = vocab_size - 4,
          .words = vocab_size,
          .cls = vocab_size - 3,
          .sep = vocab_size - 2,
          .mask = vocab_size - 1,
          .pad = vocab_size - 4};
}

}  // namespace

BertIds bert_ids(const tokenizers::Tokenizer* tokenizer, std::int64_t vocab_size) {
  const bool numbers = tokenizer != nullptr && tokenizer->special().eos < 0 && tokenizer->piece_of(0).empty();
  if (tokenizer == nullptr || numbers)
    return ids_of_numbers(numbers && vocab_size == 0 ? tokenizer->vocab_size() : vocab_size);
  BertIds ids{.vocab_size = vocab_size == 0 ? tokenizer->vocab_size() : vocab_size,
              .words = tokenizer->vocab_size()};
  std::vector<std::string> missing;
  for (const auto& [id, piece] : std::array<std::pair<std::int64_t*, const char*>, 4>{
           {{&ids.cls, "[CLS]"}, {&ids.sep, "[SEP]"}, {&ids.mask, "[MASK]"}, {&ids.pad, "[PAD]"}}})
    if ((*id = tokenizer->id_of(piece)) < 0) missing.emplace_back(piece);
  if (!missing.empty())
    throw ConfigError(fmt::format(
        "--tokenizer-type: a tokenizer for BERT must have the tokens [CLS], [SEP], [MASK] and [PAD]; got one "
        "without {}; give BertWordPieceLowerCase or BertWordPieceCase with BERT's vocab.txt, or a "
        "tokenizer.json that has them",
        fmt::join(missing, ", ")));
  if (ids.vocab_size < ids.words)
    throw ConfigError(
        fmt::format("--vocab-size must hold the tokenizer's {} ids; got {}; give --vocab-size {}", ids.words,
                    ids.vocab_size, ids.words));
  for (std::int64_t id = 0; id < ids.words; ++id)
    ids.continues_word.push_back(tokenizer->piece_of(static_cast<std::int32_t>(id)).starts_with("##"));
  return ids;
}

}  // namespace colonnade::data
