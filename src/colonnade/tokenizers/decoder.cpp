// See decoder.h.
#include "colonnade/tokenizers/decoder.h"

#include <array>
#include <charconv>

#include "colonnade/tokenizers/growth_limit.h"
#include "colonnade/tokenizers/normalizer.h"

namespace colonnade::tokenizers {
namespace {

using Tokens = std::vector<std::string>;

/// Appends the bytes of a byte-level token, or the token itself if one of its characters maps to no byte.
void append_bytes(std::string& bytes, const std::string& token) {
  const std::size_t before = bytes.size();
  bool all = true;
  for_each_char(token, [&](char32_t c, std::string_view) {
    const int byte = byte_of_char(c);
    all = all && byte >= 0;
    bytes.push_back(static_cast<char>(byte));
  });
  if (all) return;
  bytes.resize(before);
  bytes += token;
}

/// `contract_do_not`: whether " do not" becomes " don't", as in the WordPiece decoder of Hugging Face
/// tokenizers.
std::string clean_up(std::string text, bool contract_do_not) {
  static constexpr std::array<std::array<std::string_view, 2>, 11> kRules = {{{" .", "."},
                                                                              {" ?", "?"},
                                                                              {" !", "!"},
                                                                              {" ,", ","},
                                                                              {" ' ", "'"},
                                                                              {" n't", "n't"},
                                                                              {" 'm", "'m"},
                                                                              {" do not", " don't"},
                                                                              {" 's", "'s"},
                                                                              {" 've", "'ve"},
                                                                              {" 're", "'re"}}};
  for (const auto& [from, to] : kRules)
    if (contract_do_not || from != " do not") text = replace_all(text, from, to);
  return text;
}

/// replace_all() within a growth limit.
std::string replaced(std::string_view text, std::string_view pattern, std::string_view content,
                     const GrowthLimit& limit) {
  std::size_t size = text.size(), at = 0;
  if (content.size() > pattern.size())
    for (; (at = text.find(pattern, at)) != std::string_view::npos; at += pattern.size())
      limit.check(size += content.size() - pattern.size());
  return replace_all(text, pattern, content);
}

struct Decode {
  Tokens& tokens;
  const GrowthLimit& limit;

  void operator()(const ByteLevelDecoder&) const {
    std::string bytes;
    for (const std::string& token : tokens) append_bytes(bytes, token);
    tokens = {replace_invalid_utf8(bytes)};
  }
  void operator()(const ByteFallbackDecoder&) const {
    Tokens decoded;
    std::string bytes;
    const auto flush = [&] {
      if (is_utf8(bytes)) {
        if (!bytes.empty()) decoded.push_back(bytes);
      } else {
        decoded.insert(decoded.end(), bytes.size(), "\xEF\xBF\xBD");
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const int byte = byte_of_token(token); byte >= 0) {
        bytes.push_back(static_cast<char>(byte));
      } else {
        flush();
        decoded.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(decoded);
  }
  void operator()(const FuseDecoder&) const {
    std::string all;
    for (const std::string& token : tokens) all += token;
    tokens = {all};
  }
  void operator()(const BpeDecoder& decoder) const {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = replace_all(tokens[i], decoder.suffix, i + 1 == tokens.size() ? "" : " ");
  }
  void operator()(const WordPieceDecoder& decoder) const {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0)
        tokens[i] =
            tokens[i].starts_with(decoder.prefix) ? tokens[i].substr(decoder.prefix.size()) : " " + tokens[i];
      if (decoder.cleanup) tokens[i] = clean_up(std::move(tokens[i]), true);
    }
  }
  void operator()(const MetaspaceDecoder& decoder) const {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = replace_all(tokens[i], decoder.replacement, i == 0 && decoder.drop_first ? "" : " ");
  }
  void operator()(const StripDecoder& decoder) const {
    const std::size_t size = decoder.content.size();
    for (std::string& token : tokens) {
      std::string_view text = token;
      for (std::int64_t i = 0; i < decoder.start && text.starts_with(decoder.content); ++i)
        text.remove_prefix(size);
      for (std::int64_t i = 0; i < decoder.stop && text.ends_with(decoder.content); ++i)
        text.remove_suffix(size);
      token = std::string(text);
    }
  }
  void operator()(const ReplaceTextDecoder& decoder) const {
    for (std::string& token : tokens) token = replaced(token, decoder.pattern, decoder.content, limit);
  }
  void operator()(const ReplaceRegexDecoder& decoder) const {
    std::vector<Span> spans;
    for (std::string& token : tokens) {
      spans.clear();
      decoder.pattern.find(token, spans);
      std::string text;
      for (const Span& span : spans) {
        text += span.matched ? decoder.content : token.substr(span.begin, span.end - span.begin);
        limit.check(text.size());
      }
      token = std::move(text);
    }
  }
};

}  // namespace

int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = -1;
  const auto [end, status] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  return status == std::errc() && end == token.data() + 5 && token[3] != '-' ? value : -1;
}

std::string clean_up_tokenization_spaces(std::string text) { return clean_up(std::move(text), false); }

std::string decode(const std::vector<Decoder>& decoders, std::vector<std::string> tokens) {
  if (tokens.empty()) return "";
  const auto size = [&tokens] {
    std::size_t bytes = 0;
    for (const std::string& token : tokens) bytes += token.size();
    return bytes;
  };
  const GrowthLimit limit(size(), "text of ids", "Replace steps of the decoder");
  for (const Decoder& decoder : decoders) {
    std::visit(Decode{tokens, limit}, decoder);
    limit.check(size());
  }
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (decoders.empty() && i > 0) text.push_back(' ');
    text += tokens[i];
  }
  return text;
}

}  // namespace colonnade::tokenizers
