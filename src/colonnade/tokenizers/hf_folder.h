// Tokenizers of Hugging Face folders.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "colonnade/tokenizers/json_view.h"
#include "colonnade/tokenizers/tokenizer_parts.h"

namespace colonnade::tokenizers {

/// The file that decides what ids a tokenizer gives: tokenizer.json, tokenizer.model or vocab.json of a
/// folder, else `model` itself.
std::string main_file_of(const std::string& model);

/// Special tokens with names of the model's own in the order in which Transformers adds them: keys that end
/// with _token, the table of extra_special_tokens, or else of model_specific_special_tokens. `is_map`: `json`
/// is special_tokens_map.json, which counts only beside a tokenizer_config.json without added_tokens_decoder.
std::vector<std::pair<std::string, JsonView>> model_tokens(const JsonView& json, bool is_map);

/// A tokenizer.json, or a folder with one.
///
/// Of a folder, tokenizer_config.json and special_tokens_map.json name special tokens and list added ones:
/// all are found in texts, new ones get the ids behind the others. Where the first has no
/// added_tokens_decoder what the second says counts more, else it is not read (as in Transformers 5.23). What
/// a class of Transformers changes by its keys is followed: add_bos_token and add_eos_token of Llama's,
/// Gemma's and Cohere's (Transformers 4 does; 5 leaves them to tokenizer.json), do_lower_case, strip_accents
/// and tokenize_chinese_chars of BERT's, add_prefix_space where bytes are the only step. Documents get
/// special ids when `special_in_documents`. A tokenizer without bos has its cls for it, one without eos its
/// sep, as in Megatron. Beside a lone file nothing names special tokens: the first known name in the
/// vocabulary is taken
/// (<|end_of_text|>, <|endoftext|>, </s>, <eos>, ...), and documents get no special ids. Throws DataError for
/// files that are missing, damaged or disagree.
std::unique_ptr<PartsTokenizer> load_hugging_face(const std::string& model, bool special_in_documents);

}  // namespace colonnade::tokenizers
