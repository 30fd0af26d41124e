// See json_components.h.
#include "colonnade/tokenizers/json_components.h"

#include <map>
#include <unordered_map>

namespace colonnade::tokenizers {
namespace {

/// ComponentReaders by component type.
template <typename Result>
using ComponentReaders =
    std::map<std::string_view, std::function<void(const JsonView&, std::vector<Result>&)>>;

template <typename Result>
void read_by_type(const JsonView& json, const ComponentReaders<Result>& readers,
                  std::vector<Result>& results) {
  const std::string type = json.text("type");
  const auto reader = readers.find(type);
  if (reader != readers.end()) return reader->second(json, results);
  std::string known;
  for (const auto& [name, unused] : readers) known.append(known.empty() ? "" : ", ").append(name);
  json.at("type").reject(fmt::format("must be one of {}", known), fmt::format("'{}'", type),
                         "use a tokenizer without this component");
}

/// {"String": s} or {"Regex": r}.
struct PatternText {
  std::string text;
  bool is_regex;
};
PatternText pattern_of(const JsonView& json) {
  if (json.is_text()) return {json.text(), false};
  json.allow_only({"String", "Regex"});
  const auto regex = json.find("Regex"), plain = json.find("String");
  if (regex.has_value() == plain.has_value()) json.reject("must have one of String and Regex");
  const JsonView& value = regex ? *regex : *plain;
  if (value.text().empty()) value.reject("must not be empty");
  return {value.text(), regex.has_value()};
}

std::string one_char(const JsonView& json) {
  std::string text = json.text();
  if (text.empty() || count_chars(text) != 1) json.reject("must be one character");
  return text;
}

SplitBehavior behavior_of(const JsonView& json) {
  static const std::map<std::string, SplitBehavior> kNames = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  const auto found = kNames.find(json.text());
  if (found == kNames.end())
    json.reject("must be Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
  return found->second;
}

template <typename Result, typename Value>
auto plain(Value value) {
  return [value](const JsonView& json, std::vector<Result>& results) {
    json.allow_only({"type"});
    results.push_back(value);
  };
}

void read_replace(const JsonView& json, std::vector<Normalizer>& normalizers) {
  json.allow_only({"type", "pattern", "content"});
  const JsonView pattern = json.at("pattern");
  auto [text, is_regex] = pattern_of(pattern);
  if (is_regex) {
    normalizers.emplace_back(ReplaceRegex{Regex(text, pattern.where()), json.text("content")});
  } else {
    normalizers.emplace_back(ReplaceText{text, json.text("content")});
  }
}

void read_bert(const JsonView& json, std::vector<Normalizer>& normalizers) {
  json.allow_only({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  BertNormalizer bert{json.boolean("clean_text"), json.boolean("handle_chinese_chars"), true,
                      json.boolean("lowercase")};
  bert.strip_accents = json.boolean("strip_accents", bert.lowercase);
  normalizers.emplace_back(bert);
}

void read_charsmap(const JsonView& json, std::vector<Normalizer>& normalizers) {
  json.allow_only({"type", "precompiled_charsmap"});
  const JsonView map = json.at("precompiled_charsmap");
  const auto bytes = read_base64(map.text());
  if (!bytes) map.reject("must be base64");
  normalizers.emplace_back(Charsmap(*bytes, map.where()));
}

void read_split(const JsonView& json, std::vector<PreTokenizer>& steps) {
  json.allow_only({"type", "pattern", "behavior", "invert"});
  const JsonView pattern = json.at("pattern");
  const auto [text, is_regex] = pattern_of(pattern);
  SplitPreTokenizer step{LiteralPattern{text}, behavior_of(json.at("behavior")), json.boolean("invert")};
  if (is_regex) {
    if (const auto known = find_split_pattern(text)) {
      step.pattern = *known;
    } else {
      step.pattern = Regex(text, pattern.where());
    }
  }
  steps.emplace_back(std::move(step));
}

void read_byte_level(const JsonView& json, std::vector<PreTokenizer>& steps) {
  json.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  steps.emplace_back(
      ByteLevelPreTokenizer{json.boolean("add_prefix_space"), json.boolean("use_regex", true)});
}

MetaspacePreTokenizer metaspace_of(const JsonView& json) {
  json.allow_only({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  static const std::map<std::string, MetaspacePreTokenizer::Prepend> kNames = {
      {"first", MetaspacePreTokenizer::Prepend::kFirst},
      {"never", MetaspacePreTokenizer::Prepend::kNever},
      {"always", MetaspacePreTokenizer::Prepend::kAlways}};
  MetaspacePreTokenizer step{decode_utf8(one_char(json.at("replacement")).c_str()).value};
  if (const auto scheme = json.find("prepend_scheme")) {
    const auto found = kNames.find(scheme->text());
    if (found == kNames.end()) scheme->reject("must be first, never or always");
    step.prepend = found->second;
  }
  if (!json.boolean("add_prefix_space", true)) {
    if (step.prepend != MetaspacePreTokenizer::Prepend::kNever && json.find("prepend_scheme"))
      json.reject("add_prefix_space must agree with prepend_scheme", "false");
    step.prepend = MetaspacePreTokenizer::Prepend::kNever;
  }
  step.split = json.boolean("split", true);
  return step;
}

void read_replace_decoder(const JsonView& json, std::vector<Decoder>& decoders) {
  json.allow_only({"type", "pattern", "content"});
  const JsonView pattern = json.at("pattern");
  auto [text, is_regex] = pattern_of(pattern);
  if (is_regex) {
    decoders.emplace_back(ReplaceRegexDecoder{Regex(text, pattern.where()), json.text("content")});
  } else {
    decoders.emplace_back(ReplaceTextDecoder{text, json.text("content")});
  }
}

using Piece = PostProcessor::Piece;

/// ["[SEP]", 102]
Piece special_pair(const JsonView& json, std::int64_t vocab_size) {
  const auto items = json.items();
  if (items.size() != 2) json.reject("must be a token and its id", fmt::format("{} items", items.size()));
  (void)items[0].text();
  return {Piece::Kind::kSpecialToken, {static_cast<std::int32_t>(items[1].integer(0, vocab_size - 1))}, 0};
}

PostProcessor bert_processor(const JsonView& json, std::int64_t vocab_size) {
  json.allow_only({"type", "sep", "cls"});
  const Piece begin = special_pair(json.at("cls"), vocab_size),
              end = special_pair(json.at("sep"), vocab_size);
  Piece second_end = end;
  second_end.type_id = 1;
  const Piece first{Piece::Kind::kSequenceA, {}, 0}, second{Piece::Kind::kSequenceB, {}, 1};
  return {{begin, first, end}, {begin, first, end, second, second_end}};
}

PostProcessor roberta_processor(const JsonView& json, std::int64_t vocab_size) {
  json.allow_only({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
  const Piece begin = special_pair(json.at("cls"), vocab_size),
              end = special_pair(json.at("sep"), vocab_size);
  const Piece first{Piece::Kind::kSequenceA, {}, 0}, second{Piece::Kind::kSequenceB, {}, 0};
  return {{begin, first, end}, {begin, first, end, end, second, end}};
}

using SpecialTokens = std::unordered_map<std::string_view, simdjson::dom::element>;

Piece::Kind text_named(const JsonView& part, bool pair) {
  const std::string id = part.text("id");
  if (id == "A") return Piece::Kind::kSequenceA;
  if (id != "B" || !pair) part.at("id").reject(pair ? "must be A or B" : "must be A");
  return Piece::Kind::kSequenceB;
}

std::vector<std::int32_t> special_ids_of(const JsonView& part, const JsonView& specials,
                                         const SpecialTokens& by_name, std::int64_t vocab_size) {
  const std::string id = part.text("id");
  const auto found = by_name.find(id);
  const JsonView token = found == by_name.end() ? specials.at(id) : specials.member(found->second, id);
  token.allow_only({"id", "ids", "tokens"});
  std::vector<std::int32_t> ids;
  for (const JsonView& one : token.at("ids").items())
    ids.push_back(static_cast<std::int32_t>(one.integer(0, vocab_size - 1)));
  return ids;
}

std::vector<Piece> template_of(const JsonView& json, const JsonView& specials, const SpecialTokens& by_name,
                               std::int64_t vocab_size, bool pair) {
  constexpr std::size_t kMostTexts = 8, kMostSpecial = 65'536;
  std::vector<Piece> parts;
  std::size_t texts = 0, special_ids = 0;
  for (const JsonView& item : json.items()) {
    item.allow_only({"Sequence", "SpecialToken"});
    const auto sequence = item.find("Sequence"), special = item.find("SpecialToken");
    if (sequence.has_value() == special.has_value()) item.reject("must be one of Sequence and SpecialToken");
    const JsonView& part = sequence ? *sequence : *special;
    part.allow_only({"id", "type_id"});
    Piece& added = parts.emplace_back();
    added.type_id = static_cast<std::int32_t>(part.at("type_id").integer(0, 1 << 20));
    added.kind = sequence ? text_named(part, pair) : Piece::Kind::kSpecialToken;
    if (special) added.ids = special_ids_of(part, specials, by_name, vocab_size);
    texts += sequence ? 1 : 0;
    special_ids += added.ids.size();
    if (texts > kMostTexts || special_ids > kMostSpecial)
      json.reject(
          fmt::format("must name texts at most {} times, and {} special ids", kMostTexts, kMostSpecial),
          fmt::format("{} texts and {} ids", texts, special_ids));
  }
  return parts;
}

PostProcessor template_processor(const JsonView& json, std::int64_t vocab_size) {
  json.allow_only({"type", "single", "pair", "special_tokens"});
  const JsonView specials = json.at("special_tokens");
  SpecialTokens by_name;
  for (const auto& [name, value] : specials.object()) by_name.emplace(name, value);
  return {template_of(json.at("single"), specials, by_name, vocab_size, false),
          template_of(json.at("pair"), specials, by_name, vocab_size, true)};
}

/// Checks the keys of a ByteLevel component whose only effect is on offsets, which are not used here.
void check_byte_level(const JsonView& json) {
  json.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
}

/// The one processor of a Sequence that is not ByteLevel.
PostProcessor processor_sequence(const JsonView& json, std::int64_t vocab_size) {
  json.allow_only({"type", "processors"});
  PostProcessor processor;
  bool found = false;
  for (const JsonView& item : json.at("processors").items()) {
    if (item.text("type") == "ByteLevel") {
      check_byte_level(item);
      continue;
    }
    if (found || item.text("type") == "Sequence")
      item.reject("must be ByteLevel or the only other processor");
    processor = read_post_processor(item, vocab_size);
    found = true;
  }
  return processor;
}

/// Limits the number of steps, because each of them processes whole texts.
template <typename Step>
void check_count(const JsonView& json, const std::vector<Step>& steps) {
  if (steps.size() > kMaxSteps)
    json.reject(fmt::format("must have at most {} steps", kMaxSteps), std::to_string(steps.size()));
}

}  // namespace

void read_normalizer(const JsonView& json, std::vector<Normalizer>& normalizers) {
  using N = Normalizer;
  static const ComponentReaders<N> kReaders = {
      {"NFC", plain<N>(UnicodeNormalizer{NormalForm::kNfc})},
      {"NFD", plain<N>(UnicodeNormalizer{NormalForm::kNfd})},
      {"NFKC", plain<N>(UnicodeNormalizer{NormalForm::kNfkc})},
      {"NFKD", plain<N>(UnicodeNormalizer{NormalForm::kNfkd})},
      {"Lowercase", plain<N>(Lowercase{})},
      {"StripAccents", plain<N>(StripAccents{})},
      {"Nmt", plain<N>(Nmt{})},
      {"ByteLevel", plain<N>(ByteLevelNormalizer{})},
      {"BertNormalizer", read_bert},
      {"Precompiled", read_charsmap},
      {"Replace", read_replace},
      {"Strip",
       [](const JsonView& json, std::vector<N>& all) {
         json.allow_only({"type", "strip_left", "strip_right"});
         all.emplace_back(Strip{json.boolean("strip_left"), json.boolean("strip_right")});
       }},
      {"Prepend",
       [](const JsonView& json, std::vector<N>& all) {
         json.allow_only({"type", "prepend"});
         all.emplace_back(Prepend{json.text("prepend")});
       }},
      {"Sequence",
       [](const JsonView& json, std::vector<N>& all) {
         json.allow_only({"type", "normalizers"});
         for (const JsonView& item : json.at("normalizers").items()) read_normalizer(item, all);
       }},
  };
  read_by_type(json, kReaders, normalizers);
  check_count(json, normalizers);
}

void read_pre_tokenizer(const JsonView& json, std::vector<PreTokenizer>& steps) {
  using P = PreTokenizer;
  static const ComponentReaders<P> kReaders = {
      {"ByteLevel", read_byte_level},
      {"Split", read_split},
      {"Whitespace",
       [](const JsonView& json, std::vector<P>& all) {
         json.allow_only({"type"});
         all.emplace_back(SplitPreTokenizer{WordPattern{}, SplitBehavior::kRemoved, true});
       }},
      {"WhitespaceSplit",
       [](const JsonView& json, std::vector<P>& all) {
         json.allow_only({"type"});
         all.emplace_back(SplitPreTokenizer{CharFlagPattern{0}, SplitBehavior::kRemoved});
       }},
      {"BertPreTokenizer",
       [](const JsonView& json, std::vector<P>& all) {
         json.allow_only({"type"});
         all.emplace_back(SplitPreTokenizer{CharFlagPattern{0}, SplitBehavior::kRemoved});
         all.emplace_back(SplitPreTokenizer{CharFlagPattern{kBertPunctuation}});
       }},
      {"Punctuation",
       [](const JsonView& json, std::vector<P>& all) {
         json.allow_only({"type", "behavior"});
         const auto behavior = json.find("behavior");
         all.emplace_back(SplitPreTokenizer{CharFlagPattern{kBertPunctuation},
                                            behavior ? behavior_of(*behavior) : SplitBehavior::kIsolated});
       }},
      {"Digits",
       [](const JsonView& json, std::vector<P>& all) {
         json.allow_only({"type", "individual_digits"});
         all.emplace_back(SplitPreTokenizer{CharFlagPattern{kNumeric}, json.boolean("individual_digits")
                                                                           ? SplitBehavior::kIsolated
                                                                           : SplitBehavior::kContiguous});
       }},
      {"CharDelimiterSplit",
       [](const JsonView& json, std::vector<P>& all) {
         json.allow_only({"type", "delimiter"});
         all.emplace_back(
             SplitPreTokenizer{LiteralPattern{one_char(json.at("delimiter"))}, SplitBehavior::kRemoved});
       }},
      {"Metaspace", [](const JsonView& json, std::vector<P>& all) { all.emplace_back(metaspace_of(json)); }},
      {"Sequence",
       [](const JsonView& json, std::vector<P>& all) {
         json.allow_only({"type", "pretokenizers"});
         for (const JsonView& item : json.at("pretokenizers").items()) read_pre_tokenizer(item, all);
       }},
  };
  read_by_type(json, kReaders, steps);
  check_count(json, steps);
}

void read_decoder(const JsonView& json, std::vector<Decoder>& decoders) {
  using D = Decoder;
  static const ComponentReaders<D> kReaders = {
      {"ByteLevel",
       [](const JsonView& json, std::vector<D>& all) {
         check_byte_level(json);
         all.emplace_back(ByteLevelDecoder{});
       }},
      {"ByteFallback", plain<D>(ByteFallbackDecoder{})},
      {"Fuse", plain<D>(FuseDecoder{})},
      {"BPEDecoder",
       [](const JsonView& json, std::vector<D>& all) {
         json.allow_only({"type", "suffix"});
         if (json.text("suffix").empty()) json.at("suffix").reject("must not be empty");
         all.emplace_back(BpeDecoder{json.text("suffix")});
       }},
      {"WordPiece",
       [](const JsonView& json, std::vector<D>& all) {
         json.allow_only({"type", "prefix", "cleanup"});
         all.emplace_back(WordPieceDecoder{json.text("prefix"), json.boolean("cleanup")});
       }},
      {"Metaspace",
       [](const JsonView& json, std::vector<D>& all) {
         const bool drop = metaspace_of(json).prepend != MetaspacePreTokenizer::Prepend::kNever;
         all.emplace_back(MetaspaceDecoder{json.text("replacement"), drop});
       }},
      {"Strip",
       [](const JsonView& json, std::vector<D>& all) {
         json.allow_only({"type", "content", "start", "stop"});
         all.emplace_back(StripDecoder{one_char(json.at("content")), json.at("start").integer(0, 1 << 20),
                                       json.at("stop").integer(0, 1 << 20)});
       }},
      {"Replace", read_replace_decoder},
      {"Sequence",
       [](const JsonView& json, std::vector<D>& all) {
         json.allow_only({"type", "decoders"});
         const std::vector<JsonView> items = json.at("decoders").items();
         for (const JsonView& item : items) read_decoder(item, all);
         if (items.empty()) all.emplace_back(FuseDecoder{});  // joins tokens without the spaces of no decoder
       }},
  };
  read_by_type(json, kReaders, decoders);
  check_count(json, decoders);
}

PostProcessor read_post_processor(const JsonView& json, std::int64_t vocab_size) {
  const std::string type = json.text("type");
  if (type == "TemplateProcessing") return template_processor(json, vocab_size);
  if (type == "BertProcessing") return bert_processor(json, vocab_size);
  if (type == "RobertaProcessing") return roberta_processor(json, vocab_size);
  if (type == "Sequence") return processor_sequence(json, vocab_size);
  if (type == "ByteLevel") return check_byte_level(json), PostProcessor();
  json.at("type").reject(
      "must be one of TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, Sequence",
      fmt::format("'{}'", type), "use a tokenizer without this component");
}

}  // namespace colonnade::tokenizers
