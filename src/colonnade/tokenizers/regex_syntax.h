// The part of Oniguruma's syntax (Ruby's) that PCRE2 can be told to read in the same way.
#pragma once

#include <string>

namespace colonnade::tokenizers {

/// `pattern` for PCRE2 with PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE. Only constructs of which it is known
/// that both engines read them alike are let through (docs/formats/tokenizer_json.md lists them). Throws
/// DataError, with `where` in front and the construct named, for any other.
std::string regex_for_pcre2(const std::string& pattern, const std::string& where);

}  // namespace colonnade::tokenizers
