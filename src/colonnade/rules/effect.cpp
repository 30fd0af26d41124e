// Given settings that would change the model or leave a file unread if they were ignored; the notes on
// harmless ones are in no_effect.cpp.
#include <array>

#include "colonnade/config/parse.h"
#include "colonnade/config/schema.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {
namespace {

using config::Run;
using Broken = std::optional<Finding>;

constexpr std::array kTokenizerKeys{"tokenizer_model",
                                    "vocab_file",
                                    "merge_file",
                                    "tiktoken_pattern",
                                    "tiktoken_num_special_tokens",
                                    "tokenizer_hf_include_special_tokens",
                                    "allow_ambiguous_pad_tokens"};

/// With NullTokenizer they are a note.
Broken tokenizer_options_without_type(const Run& r) {
  constexpr const char* kType = "a --tokenizer-type that reads a file";
  if (!r.data.tokenizer_type.empty() || r.invalid_keys.contains("tokenizer_type")) return std::nullopt;
  Finding found{"", fmt::format("must be given with {}", kType), "", {}, ""};
  for (const char* key : kTokenizerKeys) {
    const config::Setting& s = config::setting(key);
    if (is_given_without_effect(r, s, "tokenizer_type"))
      found.add(s, config::text_of(r, s), s.default_text());
  }
  if (found.edits.empty()) return std::nullopt;
  found.fix = fmt::format("{}, or add {}", removal(found), kType);
  return found;
}

/// Megatron clamps and shifts the factors of every gated unit.
Broken glu_clamp_or_offset(const Run& r) {
  const auto& m = r.model;
  if (!m.is_gated() || m.activation == config::Activation::kQuickGeglu) return std::nullopt;
  Finding found{"", "must be used with --quick-geglu", "", {}, ""};
  for (const char* key : {"glu_linear_offset", "activation_func_clamp_value"}) {
    const config::Setting& s = config::setting(key);
    if (config::text_of(r, s) != s.default_text()) found.add(s, config::text_of(r, s), s.default_text());
  }
  found.fix = removal(found);
  return found.edits.empty() ? Broken{} : found;
}

/// Megatron's BERT tokenizer appends them to its vocabulary, so that the embedding has more rows.
Broken bert_extra_ids(const Run& r) {
  if (r.model_type != "bert" || r.data.vocab_extra_ids == 0) return std::nullopt;
  return Finding{"--vocab-extra-ids",
                 "requires --model t5",
                 text(r.data.vocab_extra_ids),
                 {{"vocab_extra_ids", "0"}},
                 "remove the flag; --vocab-size sets the rows of the embedding"};
}

constexpr Rule kEffect[] = {
    {"gate-bounds", false, glu_clamp_or_offset, "activation=swiglu; glu_linear_offset=1",
     "Other gated units are not clamped or shifted here; ignoring the flag would change the model.",
     "activation"},
    {"bert-sentinels", false, bert_extra_ids, "model=bert; vocab_extra_ids=10; bert_binary_head=false",
     "Megatron appends the extra ids to BERT's vocabulary; ignoring the flag would change its size.",
     "model"},
    {"tokenizer-model-no-effect", false, tokenizer_options_without_type, "tokenizer_model=books.model",
     "The tokenizer type decides how the file is read."},
};

}  // namespace

std::span<const Rule> effect_rules() { return kEffect; }

bool is_given_without_effect(const Run& r, const config::Setting& s, const char* other) {
  if (!r.given.contains(s.key) || config::text_of(r, s) == s.default_text()) return false;
  return config::is_from_command_line(r, s.key) || !config::is_from_command_line(r, other);
}

}  // namespace colonnade::rules
