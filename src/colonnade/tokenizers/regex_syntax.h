// Translation of a subset of Oniguruma's (Ruby's) regular expressions for PCRE2.
#pragma once

#include <string>

namespace colonnade::tokenizers {

/// `pattern` for PCRE2 with PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE. Supports only constructs that are known
/// to mean the same in both engines (docs/formats/tokenizer_json.md lists them). Throws DataError that starts
/// with `where` and names the construct for any other.
std::string regex_for_pcre2(const std::string& pattern, const std::string& where);

}  // namespace colonnade::tokenizers
