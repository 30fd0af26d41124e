// Tokenizers of Hugging Face folders.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "colonnade/tokenizers/hf_tokenizer.h"
#include "colonnade/tokenizers/json_view.h"

namespace colonnade::tokenizers {

/// The file that determines the ids of a tokenizer: tokenizer.json, tokenizer.model, vocab.json or vocab.txt
/// of a folder, or `model` itself.
std::string main_file(const std::string& model);

/// Model-specific special tokens in the order in which Transformers adds them: keys that end with _token,
/// then the object under extra_special_tokens or else under model_specific_special_tokens. `is_map`: whether
/// `json` is special_tokens_map.json, which is read only if tokenizer_config.json has no
/// added_tokens_decoder.
std::vector<std::pair<std::string, JsonView>> model_specific_tokens(const JsonView& json, bool is_map);

/// Loads a tokenizer.json, or a folder with one.
///
/// In a folder, tokenizer_config.json and special_tokens_map.json name special tokens and list added tokens.
/// All are matched in texts; new ones get the ids after the existing ones. special_tokens_map.json takes
/// precedence if tokenizer_config.json has no added_tokens_decoder; otherwise it is not read (as in
/// Transformers 5.23).
///
/// Keys that change the tokenizer of a Transformers class have the same effect here: add_bos_token and
/// add_eos_token for Llama, Gemma and Cohere (as in Transformers 4; 5 leaves them to tokenizer.json),
/// do_lower_case, strip_accents and tokenize_chinese_chars for BERT, and add_prefix_space if ByteLevel is the
/// only pre-tokenizer.
///
/// Documents get special ids if `special_in_documents`. As in Megatron, cls replaces a missing bos and sep a
/// missing eos. Nothing names the special tokens of a single file: they are the first known names in the
/// vocabulary (<|end_of_text|>, <|endoftext|>, </s>, <eos>, ...), and documents get no special ids. Throws
/// DataError for files that are missing, damaged or inconsistent.
std::unique_ptr<HfTokenizer> load_hugging_face(const std::string& model, bool special_in_documents);

}  // namespace colonnade::tokenizers
