// See pre_tokenizer.h.
#include "colonnade/tokenizers/pre_tokenizer.h"

#include <array>

#include "colonnade/tokenizers/growth_limit.h"

namespace colonnade::tokenizers {
namespace {

struct Find {
  std::string_view text;
  std::vector<Span>& spans;

  void operator()(const LiteralPattern& pattern) const {
    std::size_t at = 0;
    for (std::size_t found = 0; (found = text.find(pattern.text, at)) != std::string_view::npos;
         at = found + pattern.text.size()) {
      if (found > at) spans.push_back({at, found, false});
      spans.push_back({found, found + pattern.text.size(), true});
    }
    if (at < text.size()) spans.push_back({at, text.size(), false});
  }
  void operator()(const CharFlagPattern& pattern) const {
    const CharTable& table = CharTable::get();
    std::size_t begin = 0, at = 0;
    for_each_char(text, [&](char32_t c, std::string_view bytes) {
      const bool matched = pattern.flags == 0 ? table.is_space(c) : (table[c] & pattern.flags) != 0;
      if (matched) {
        if (begin < at) spans.push_back({begin, at, false});
        spans.push_back({at, at + bytes.size(), true});
        begin = at + bytes.size();
      }
      at += bytes.size();
    });
    if (begin < at) spans.push_back({begin, at, false});
  }
  void operator()(const WordPattern&) const {
    const CharTable& table = CharTable::get();
    int kind = -1;  // 0: white space, 1: word, 2: other
    std::size_t at = 0;
    for_each_char(text, [&](char32_t c, std::string_view bytes) {
      const int own = table.has(c, kWord) ? 1 : table.is_space(c) ? 0 : 2;
      if (own != kind) spans.push_back({at, at, own != 0});
      kind = own;
      at += bytes.size();
      spans.back().end = at;
    });
  }
  void operator()(SplitPattern pattern) const { split_by_pattern(pattern, text, spans); }
  void operator()(const Regex& regex) const { regex.find(text, spans); }
};

/// Merges a match into the span before it, unless that is a match itself.
void merge_with_previous(std::vector<Span>& spans) {
  std::vector<Span> merged;
  bool previous = false;
  for (const Span& span : spans) {
    if (span.matched && !previous && !merged.empty()) {
      merged.back().end = span.end;
    } else {
      merged.push_back(span);
    }
    previous = span.matched;
  }
  spans = std::move(merged);
}

/// Merges a match into the span after it, unless that is a match itself.
void merge_with_next(std::vector<Span>& spans) {
  std::vector<Span> merged;
  bool next = false;
  for (std::size_t i = spans.size(); i-- > 0;) {
    const Span& span = spans[i];
    if (span.matched && !next && !merged.empty()) {
      merged.back().begin = span.begin;
    } else {
      merged.push_back(span);
    }
    next = span.matched;
  }
  spans.assign(merged.rbegin(), merged.rend());
}

/// Merges adjacent spans of the same kind.
void merge_runs(std::vector<Span>& spans) {
  std::vector<Span> merged;
  for (const Span& span : spans) {
    if (!merged.empty() && merged.back().matched == span.matched) {
      merged.back().end = span.end;
    } else {
      merged.push_back(span);
    }
  }
  spans = std::move(merged);
}

/// The next offset at or after `from` where a text can be split before the step without changing its result;
/// the end of the text if there is none.
std::size_t next_split_point(const SplitPreTokenizer& step, std::string_view text, std::size_t from) {
  const bool separate = step.behavior == SplitBehavior::kRemoved || step.behavior == SplitBehavior::kIsolated;
  if (const auto* literal = std::get_if<LiteralPattern>(&step.pattern)) {
    if (step.invert || !(separate || step.behavior == SplitBehavior::kMergedWithNext)) return text.size();
    return count_chars(literal->text) == 1 ? std::min(text.find(literal->text, from), text.size())
                                           : text.size();
  }
  const auto* flags = std::get_if<CharFlagPattern>(&step.pattern);
  if (flags == nullptr || !separate) return text.size();
  const CharTable& table = CharTable::get();
  while (from < text.size() && (text[from] & 0xC0) == 0x80) ++from;
  while (from < text.size()) {
    const Decoded c = decode_utf8(text.data() + from);
    if (flags->flags == 0 ? table.is_space(c.value) : (table[c.value] & flags->flags) != 0) break;
    from += static_cast<std::size_t>(c.size);
  }
  return std::min(from, text.size());
}

struct PreTokenize {
  std::string_view text;
  bool first;
  const PieceSink& use;

  /// Splits long texts block by block, because spans take many times the memory of their text.
  void split_in_blocks(std::string_view whole, const SplitPreTokenizer& step) const {
    constexpr std::size_t kBlock = std::size_t{1} << 16;
    std::vector<Span> spans;
    for (std::size_t begin = 0, end = 0; begin < whole.size(); begin = end) {
      end = whole.size() - begin <= kBlock ? whole.size() : next_split_point(step, whole, begin + kBlock);
      const std::string_view block = whole.substr(begin, end - begin);
      split(step, block, spans);
      for (const Span& span : spans)
        use(block.substr(span.begin, span.end - span.begin), first && begin + span.begin == 0);
    }
  }
  void operator()(const SplitPreTokenizer& step) const { split_in_blocks(text, step); }
  void operator()(const ByteLevelPreTokenizer& step) const {
    const bool spaced = step.add_prefix_space && !text.empty() && text[0] != ' ';
    const std::string own = (spaced ? " " : "") + std::string(text);
    if (!step.use_regex) return use(bytes_as_chars(own), first);
    const PieceSink as_chars = [&](std::string_view piece, bool at_first) {
      use(bytes_as_chars(piece), at_first);
    };
    PreTokenize{own, first, as_chars}.split_in_blocks(own, {.pattern = SplitPattern::kGpt2});
  }
  void operator()(const MetaspacePreTokenizer& step) const {
    std::string mark;
    append_utf8(mark, step.replacement);
    std::string own = replace_all(text, " ", mark);
    const bool prepend = step.prepend == MetaspacePreTokenizer::Prepend::kAlways ||
                         (step.prepend == MetaspacePreTokenizer::Prepend::kFirst && first);
    if (prepend && !own.empty() && !own.starts_with(mark)) own.insert(0, mark);
    if (!step.split) return use(own, first);
    split_in_blocks(own, {.pattern = LiteralPattern{mark}, .behavior = SplitBehavior::kMergedWithNext});
  }
};

}  // namespace

void split(const SplitPreTokenizer& step, std::string_view text, std::vector<Span>& spans) {
  spans.clear();
  std::visit(Find{text, spans}, step.pattern);
  if (step.invert)
    for (Span& span : spans) span.matched = !span.matched;
  switch (step.behavior) {
    case SplitBehavior::kRemoved:
      std::erase_if(spans, [](const Span& span) { return span.matched; });
      break;
    case SplitBehavior::kIsolated:
      break;
    case SplitBehavior::kMergedWithPrevious:
      merge_with_previous(spans);
      break;
    case SplitBehavior::kMergedWithNext:
      merge_with_next(spans);
      break;
    case SplitBehavior::kContiguous:
      merge_runs(spans);
      break;
  }
  std::erase_if(spans, [](const Span& span) { return span.begin == span.end; });
}

namespace {

/// Runs the steps from `level` on depth first, without a list of all pieces.
struct Steps {
  std::span<const PreTokenizer> all;
  const PieceSink& use;
  GrowthLimit limit;
  std::array<std::size_t, kMaxSteps + 1> bytes{};  // input bytes of each step so far

  void run(std::size_t level, std::string_view text, bool first) {
    if (text.empty()) return;
    limit.check(bytes[level] += text.size());
    if (level == all.size()) return use(text, first);
    const PieceSink next = [&](std::string_view piece, bool at_first) { run(level + 1, piece, at_first); };
    std::visit(PreTokenize{text, first, next}, all[level]);
  }
};

}  // namespace

void pre_tokenize(std::span<const PreTokenizer> steps, std::string_view text, bool first,
                  const PieceSink& use) {
  Steps{steps, use, {text.size(), "text that is split into words", "steps of the pre_tokenizer"}}.run(0, text,
                                                                                                      first);
}

}  // namespace colonnade::tokenizers
