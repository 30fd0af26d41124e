// See pre_tokenizer.h.
#include "colonnade/data/tokenizers/pre_tokenizer.h"

#include "colonnade/data/tokenizers/growth.h"

namespace colonnade::data {
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
  void operator()(const FlagPattern& pattern) const {
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
    int kind = -1;  // 0: white space, 1: word, 2: neither
    std::size_t at = 0;
    for_each_char(text, [&](char32_t c, std::string_view bytes) {
      const int own = table.has(c, kWord) ? 1 : table.is_space(c) ? 0 : 2;
      if (own != kind) spans.push_back({at, at, own != 0});
      kind = own;
      at += bytes.size();
      spans.back().end = at;
    });
  }
  void operator()(SplitRule rule) const { split_by_rule(rule, text, spans); }
  void operator()(const Regex& regex) const { regex.find(text, spans); }
};

/// Joins a delimiter to its neighbour: to the one before, unless that is a delimiter itself.
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

struct PreTokenize {
  const Piece& piece;
  std::vector<Piece>& pieces;

  void cut(const std::string& text, bool first, const SplitStep& step) const {
    std::vector<Span> spans;
    split(step, text, spans);
    for (const Span& span : spans)
      pieces.push_back({text.substr(span.begin, span.end - span.begin), first && span.begin == 0});
  }
  void operator()(const SplitStep& step) const { cut(piece.text, piece.first, step); }
  void operator()(const ByteLevelStep& step) const {
    const std::size_t before = pieces.size();
    const bool spaced = step.add_prefix_space && !piece.text.empty() && piece.text[0] != ' ';
    const std::string text = spaced ? " " + piece.text : piece.text;
    if (step.use_regex) {
      cut(text, piece.first, {.pattern = SplitRule::kGpt2});
    } else {
      pieces.push_back({text, piece.first});
    }
    for (std::size_t i = before; i < pieces.size(); ++i) pieces[i].text = bytes_as_chars(pieces[i].text);
  }
  void operator()(const MetaspaceStep& step) const {
    std::string mark;
    append_utf8(mark, step.replacement);
    std::string text = replace_all(piece.text, " ", mark);
    const bool wanted = step.prepend == MetaspaceStep::Prepend::kAlways ||
                        (step.prepend == MetaspaceStep::Prepend::kFirst && piece.first);
    if (wanted && !text.empty() && !text.starts_with(mark)) text.insert(0, mark);
    if (step.split) {
      cut(text, piece.first, {.pattern = LiteralPattern{mark}, .behavior = Delimiter::kMergedWithNext});
    } else {
      pieces.push_back({text, piece.first});
    }
  }
};

}  // namespace

void split(const SplitStep& step, std::string_view text, std::vector<Span>& spans) {
  spans.clear();
  std::visit(Find{text, spans}, step.pattern);
  if (step.invert)
    for (Span& span : spans) span.matched = !span.matched;
  switch (step.behavior) {
    case Delimiter::kRemoved:
      std::erase_if(spans, [](const Span& span) { return span.matched; });
      break;
    case Delimiter::kIsolated:
      break;
    case Delimiter::kMergedWithPrevious:
      merge_with_previous(spans);
      break;
    case Delimiter::kMergedWithNext:
      merge_with_next(spans);
      break;
    case Delimiter::kContiguous:
      merge_runs(spans);
      break;
  }
  std::erase_if(spans, [](const Span& span) { return span.begin == span.end; });
}

std::vector<Piece> pre_tokenize(const std::vector<PreTokenizer>& steps, Piece piece) {
  std::vector<Piece> pieces, next;
  const GrowthLimit limit(piece.text.size(), "text that is cut into words", "steps of the pre_tokenizer");
  pieces.push_back(std::move(piece));
  for (const PreTokenizer& step : steps) {
    next.clear();
    std::size_t size = 0;
    for (const Piece& one : pieces)
      if (!one.text.empty()) std::visit(PreTokenize{one, next}, step);
    for (const Piece& one : next) limit.check(size += one.text.size());
    pieces.swap(next);
  }
  std::erase_if(pieces, [](const Piece& one) { return one.text.empty(); });
  return pieces;
}

}  // namespace colonnade::data
