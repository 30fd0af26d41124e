// See regex.h. The only file that includes PCRE2.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "colonnade/tokenizers/regex.h"

#include <pcre2.h>

#include <array>

#include "colonnade/base/error.h"
#include "colonnade/tokenizers/regex_syntax.h"

namespace colonnade::tokenizers {
namespace {

constexpr std::uint32_t kMatchLimit = 10'000'000;  // steps of one match: bounds catastrophic backtracking

struct Deleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

}  // namespace

struct Regex::State {
  std::unique_ptr<pcre2_code, Deleter> code;
  std::unique_ptr<pcre2_match_context, Deleter> context;
  std::string pattern, where;
};

Regex::Regex(const std::string& pattern, const std::string& where) : state_(std::make_unique<State>()) {
  const std::string text = regex_for_pcre2(pattern, where);
  const std::unique_ptr<pcre2_compile_context, Deleter> lines(pcre2_compile_context_create(nullptr));
  pcre2_set_newline(lines.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  std::size_t offset = 0;
  state_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK, &error,
                                   &offset, lines.get()));
  if (state_->code == nullptr) {
    std::array<unsigned char, 200> message{};
    pcre2_get_error_message(error, message.data(), message.size());
    throw DataError(fmt::format("{} must be a regular expression; got '{}' ({}); fix it", where,
                                pattern.substr(0, 200), reinterpret_cast<const char*>(message.data())));
  }
  pcre2_jit_compile(state_->code.get(), PCRE2_JIT_COMPLETE);  // falls back to the interpreter
  state_->context.reset(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(state_->context.get(), kMatchLimit);
  state_->pattern = pattern;
  state_->where = where;
}

Regex::~Regex() = default;
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;

void Regex::find(std::string_view text, std::vector<Span>& spans) const {
  const std::unique_ptr<pcre2_match_data, Deleter> data(
      pcre2_match_data_create_from_pattern(state_->code.get(), nullptr));
  if (text.empty()) return;
  std::size_t previous = 0;
  bool matched = false;  // a match ends at `previous`
  for (std::size_t at = 0; at <= text.size();) {
    const auto match = [&](std::uint32_t options) {
      return pcre2_match(state_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                         PCRE2_NO_UTF_CHECK | options, data.get(), state_->context.get());
    };
    int found = match(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
      found = match(PCRE2_NO_JIT);  // the interpreter uses the heap as its stack
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0)
      throw DataError(
          fmt::format("{} must find a match within {} steps; got more with '{}' (PCRE2 code {}); write an "
                      "expression that backtracks less",
                      state_->where, kMatchLimit, state_->pattern.substr(0, 200), found));
    const std::size_t* ends = pcre2_get_ovector_pointer(data.get());
    const std::size_t begin = ends[0], end = ends[1];
    if (begin > previous) spans.push_back({previous, begin, false});
    if (begin < end || begin > previous || !matched) spans.push_back({begin, end, true});
    previous = at = end;
    matched = true;
    if (begin < end) continue;
    for (++at; at < text.size() && (text[at] & 0xC0) == 0x80;) ++at;  // continues after the next character
  }
  if (previous < text.size()) spans.push_back({previous, text.size(), false});
}

}  // namespace colonnade::tokenizers
