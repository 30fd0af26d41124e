// See json_parts.h.
#include "colonnade/tokenizers/json_parts.h"

#include <map>
#include <unordered_map>

namespace colonnade::tokenizers {
namespace {

/// A table of readers by type; an unknown type is an error that names the known ones.
template <typename Result>
using Readers = std::map<std::string_view, std::function<void(const JsonView&, std::vector<Result>&)>>;

template <typename Result>
void read_by_type(const JsonView& json, const Readers<Result>& readers, std::vector<Result>& results) {
  const std::string type = json.text("type");
  const auto reader = readers.find(type);
  if (reader != readers.end()) return reader->second(json, results);
  std::string known;
  for (const auto& [name, unused] : readers) known.append(known.empty() ? "" : ", ").append(name);
  json.at("type").refuse(fmt::format("must be one of {}", known), fmt::format("'{}'", type),
                         "use a tokenizer without this part");
}

/// {"String": s} or {"Regex": r}.
struct PatternText {
  std::string text;
  bool is_regex;
};
PatternText pattern_of(const JsonView& json) {
  if (json.is_text()) return {json.text(), false};
  json.only({"String", "Regex"});
  const auto regex = json.find("Regex"), plain = json.find("String");
  if (regex.has_value() == plain.has_value()) json.refuse("must have one of String and Regex");
  const JsonView& value = regex ? *regex : *plain;
  if (value.text().empty()) value.refuse("must not be empty");
  return {value.text(), regex.has_value()};
}

std::string one_char(const JsonView& json) {
  std::string text = json.text();
  if (text.empty() || count_chars(text) != 1) json.refuse("must be one character");
  return text;
}

Delimiter delimiter_of(const JsonView& json) {
  static const std::map<std::string, Delimiter> kNames = {
      {"Removed", Delimiter::kRemoved},
      {"Isolated", Delimiter::kIsolated},
      {"MergedWithPrevious", Delimiter::kMergedWithPrevious},
      {"MergedWithNext", Delimiter::kMergedWithNext},
      {"Contiguous", Delimiter::kContiguous}};
  const auto found = kNames.find(json.text());
  if (found == kNames.end())
    json.refuse("must be Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
  return found->second;
}

template <typename Result, typename Value>
auto plain(Value value) {
  return [value](const JsonView& json, std::vector<Result>& results) {
    json.only({"type"});
    results.push_back(value);
  };
}

void read_replace(const JsonView& json, std::vector<Normalizer>& normalizers) {
  json.only({"type", "pattern", "content"});
  const JsonView pattern = json.at("pattern");
  auto [text, is_regex] = pattern_of(pattern);
  if (is_regex) {
    normalizers.emplace_back(ReplaceRegex{Regex(text, pattern.where()), json.text("content")});
  } else {
    normalizers.emplace_back(ReplaceText{text, json.text("content")});
  }
}

void read_bert(const JsonView& json, std::vector<Normalizer>& normalizers) {
  json.only({"type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  BertCleaning how{json.boolean("clean_text"), json.boolean("handle_chinese_chars"), true,
                   json.boolean("lowercase")};
  how.strip_accents = json.boolean("strip_accents", how.lower);
  normalizers.emplace_back(how);
}

void read_charsmap(const JsonView& json, std::vector<Normalizer>& normalizers) {
  json.only({"type", "precompiled_charsmap"});
  const JsonView map = json.at("precompiled_charsmap");
  const auto bytes = read_base64(map.text());
  if (!bytes) map.refuse("must be base64");
  normalizers.emplace_back(Charsmap(*bytes, map.where()));
}

void read_split(const JsonView& json, std::vector<PreTokenizer>& steps) {
  json.only({"type", "pattern", "behavior", "invert"});
  const JsonView pattern = json.at("pattern");
  const auto [text, is_regex] = pattern_of(pattern);
  SplitStep step{LiteralPattern{text}, delimiter_of(json.at("behavior")), json.boolean("invert")};
  if (is_regex) {
    if (const auto rule = known_rule(text)) {
      step.pattern = *rule;
    } else {
      step.pattern = Regex(text, pattern.where());
    }
  }
  steps.emplace_back(std::move(step));
}

void read_byte_level(const JsonView& json, std::vector<PreTokenizer>& steps) {
  json.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
  steps.emplace_back(ByteLevelStep{json.boolean("add_prefix_space"), json.boolean("use_regex", true)});
}

MetaspaceStep metaspace_of(const JsonView& json) {
  json.only({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  static const std::map<std::string, MetaspaceStep::Prepend> kNames = {
      {"first", MetaspaceStep::Prepend::kFirst},
      {"never", MetaspaceStep::Prepend::kNever},
      {"always", MetaspaceStep::Prepend::kAlways}};
  MetaspaceStep step{decode_utf8(one_char(json.at("replacement")).c_str()).value};
  if (const auto scheme = json.find("prepend_scheme")) {
    const auto found = kNames.find(scheme->text());
    if (found == kNames.end()) scheme->refuse("must be first, never or always");
    step.prepend = found->second;
  }
  if (!json.boolean("add_prefix_space", true)) {
    if (step.prepend != MetaspaceStep::Prepend::kNever && json.find("prepend_scheme"))
      json.refuse("add_prefix_space must agree with prepend_scheme", "false");
    step.prepend = MetaspaceStep::Prepend::kNever;
  }
  step.split = json.boolean("split", true);
  return step;
}

void read_replace_decoder(const JsonView& json, std::vector<Decoder>& decoders) {
  json.only({"type", "pattern", "content"});
  const JsonView pattern = json.at("pattern");
  auto [text, is_regex] = pattern_of(pattern);
  if (is_regex) {
    decoders.emplace_back(ReplaceRegexDecoder{Regex(text, pattern.where()), json.text("content")});
  } else {
    decoders.emplace_back(ReplaceTextDecoder{text, json.text("content")});
  }
}

using Part = PostProcessor::Part;

/// ["[SEP]", 102]
Part special_pair(const JsonView& json, std::int64_t vocab_size) {
  const auto items = json.items();
  if (items.size() != 2) json.refuse("must be a token and its id", fmt::format("{} items", items.size()));
  (void)items[0].text();
  return {Part::Kind::kSpecial, {static_cast<std::int32_t>(items[1].integer(0, vocab_size - 1))}, 0};
}

PostProcessor bert_processor(const JsonView& json, std::int64_t vocab_size) {
  json.only({"type", "sep", "cls"});
  const Part begin = special_pair(json.at("cls"), vocab_size), end = special_pair(json.at("sep"), vocab_size);
  Part second_end = end;
  second_end.type_id = 1;
  const Part first{Part::Kind::kFirst, {}, 0}, second{Part::Kind::kSecond, {}, 1};
  return {{begin, first, end}, {begin, first, end, second, second_end}};
}

PostProcessor roberta_processor(const JsonView& json, std::int64_t vocab_size) {
  json.only({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
  const Part begin = special_pair(json.at("cls"), vocab_size), end = special_pair(json.at("sep"), vocab_size);
  const Part first{Part::Kind::kFirst, {}, 0}, second{Part::Kind::kSecond, {}, 0};
  return {{begin, first, end}, {begin, first, end, end, second, end}};
}

using SpecialTokens = std::unordered_map<std::string_view, simdjson::dom::element>;

Part::Kind text_named(const JsonView& part, bool pair) {
  const std::string id = part.text("id");
  if (id == "A") return Part::Kind::kFirst;
  if (id != "B" || !pair) part.at("id").refuse(pair ? "must be A or B" : "must be A");
  return Part::Kind::kSecond;
}

std::vector<std::int32_t> special_ids_of(const JsonView& part, const JsonView& specials,
                                         const SpecialTokens& by_name, std::int64_t vocab_size) {
  const std::string id = part.text("id");
  const auto found = by_name.find(id);
  const JsonView token = found == by_name.end() ? specials.at(id) : specials.member(found->second, id);
  token.only({"id", "ids", "tokens"});
  std::vector<std::int32_t> ids;
  for (const JsonView& one : token.at("ids").items())
    ids.push_back(static_cast<std::int32_t>(one.integer(0, vocab_size - 1)));
  return ids;
}

std::vector<Part> template_of(const JsonView& json, const JsonView& specials, const SpecialTokens& by_name,
                              std::int64_t vocab_size, bool pair) {
  constexpr std::size_t kMostTexts = 8, kMostSpecial = 65'536;
  std::vector<Part> parts;
  std::size_t texts = 0, special_ids = 0;
  for (const JsonView& item : json.items()) {
    item.only({"Sequence", "SpecialToken"});
    const auto sequence = item.find("Sequence"), special = item.find("SpecialToken");
    if (sequence.has_value() == special.has_value()) item.refuse("must be one of Sequence and SpecialToken");
    const JsonView& part = sequence ? *sequence : *special;
    part.only({"id", "type_id"});
    Part& added = parts.emplace_back();
    added.type_id = static_cast<std::int32_t>(part.at("type_id").integer(0, 1 << 20));
    added.kind = sequence ? text_named(part, pair) : Part::Kind::kSpecial;
    if (special) added.ids = special_ids_of(part, specials, by_name, vocab_size);
    texts += sequence ? 1 : 0;
    special_ids += added.ids.size();
    if (texts > kMostTexts || special_ids > kMostSpecial)
      json.refuse(
          fmt::format("must name texts at most {} times, and {} special ids", kMostTexts, kMostSpecial),
          fmt::format("{} texts and {} ids", texts, special_ids));
  }
  return parts;
}

PostProcessor template_processor(const JsonView& json, std::int64_t vocab_size) {
  json.only({"type", "single", "pair", "special_tokens"});
  const JsonView specials = json.at("special_tokens");
  SpecialTokens by_name;
  for (const auto& [name, value] : specials.object()) by_name.emplace(name, value);
  return {template_of(json.at("single"), specials, by_name, vocab_size, false),
          template_of(json.at("pair"), specials, by_name, vocab_size, true)};
}

/// Trims offsets, which are of no use here.
void check_byte_level(const JsonView& json) {
  json.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
}

/// Sequences hold any number of ByteLevel and one of the others.
PostProcessor processor_sequence(const JsonView& json, std::int64_t vocab_size) {
  json.only({"type", "processors"});
  PostProcessor processor;
  bool found = false;
  for (const JsonView& item : json.at("processors").items()) {
    if (item.text("type") == "ByteLevel") {
      check_byte_level(item);
      continue;
    }
    if (found || item.text("type") == "Sequence") item.refuse("must be ByteLevel beside one other processor");
    processor = read_post_processor(item, vocab_size);
    found = true;
  }
  return processor;
}

/// Each of them goes over whole texts.
template <typename Part>
void check_number(const JsonView& json, const std::vector<Part>& steps) {
  if (steps.size() > kMostSteps)
    json.refuse(fmt::format("must have at most {} steps", kMostSteps), std::to_string(steps.size()));
}

}  // namespace

void read_normalizer(const JsonView& json, std::vector<Normalizer>& normalizers) {
  using N = Normalizer;
  static const Readers<N> kReaders = {
      {"NFC", plain<N>(UnicodeForm{NormalForm::kNfc})},
      {"NFD", plain<N>(UnicodeForm{NormalForm::kNfd})},
      {"NFKC", plain<N>(UnicodeForm{NormalForm::kNfkc})},
      {"NFKD", plain<N>(UnicodeForm{NormalForm::kNfkd})},
      {"Lowercase", plain<N>(LowerCase{})},
      {"StripAccents", plain<N>(StripAccents{})},
      {"Nmt", plain<N>(NmtCleaning{})},
      {"ByteLevel", plain<N>(ByteChars{})},
      {"BertNormalizer", read_bert},
      {"Precompiled", read_charsmap},
      {"Replace", read_replace},
      {"Strip",
       [](const JsonView& json, std::vector<N>& all) {
         json.only({"type", "strip_left", "strip_right"});
         all.emplace_back(StripSpace{json.boolean("strip_left"), json.boolean("strip_right")});
       }},
      {"Prepend",
       [](const JsonView& json, std::vector<N>& all) {
         json.only({"type", "prepend"});
         all.emplace_back(Prepend{json.text("prepend")});
       }},
      {"Sequence",
       [](const JsonView& json, std::vector<N>& all) {
         json.only({"type", "normalizers"});
         for (const JsonView& item : json.at("normalizers").items()) read_normalizer(item, all);
       }},
  };
  read_by_type(json, kReaders, normalizers);
  check_number(json, normalizers);
}

void read_pre_tokenizer(const JsonView& json, std::vector<PreTokenizer>& steps) {
  using P = PreTokenizer;
  static const Readers<P> kReaders = {
      {"ByteLevel", read_byte_level},
      {"Split", read_split},
      {"Whitespace",
       [](const JsonView& json, std::vector<P>& all) {
         json.only({"type"});
         all.emplace_back(SplitStep{WordPattern{}, Delimiter::kRemoved, true});
       }},
      {"WhitespaceSplit",
       [](const JsonView& json, std::vector<P>& all) {
         json.only({"type"});
         all.emplace_back(SplitStep{FlagPattern{0}, Delimiter::kRemoved});
       }},
      {"BertPreTokenizer",
       [](const JsonView& json, std::vector<P>& all) {
         json.only({"type"});
         all.emplace_back(SplitStep{FlagPattern{0}, Delimiter::kRemoved});
         all.emplace_back(SplitStep{FlagPattern{kBertPunctuation}});
       }},
      {"Punctuation",
       [](const JsonView& json, std::vector<P>& all) {
         json.only({"type", "behavior"});
         const auto behavior = json.find("behavior");
         all.emplace_back(SplitStep{FlagPattern{kBertPunctuation},
                                    behavior ? delimiter_of(*behavior) : Delimiter::kIsolated});
       }},
      {"Digits",
       [](const JsonView& json, std::vector<P>& all) {
         json.only({"type", "individual_digits"});
         all.emplace_back(SplitStep{FlagPattern{kNumeric}, json.boolean("individual_digits")
                                                               ? Delimiter::kIsolated
                                                               : Delimiter::kContiguous});
       }},
      {"CharDelimiterSplit",
       [](const JsonView& json, std::vector<P>& all) {
         json.only({"type", "delimiter"});
         all.emplace_back(SplitStep{LiteralPattern{one_char(json.at("delimiter"))}, Delimiter::kRemoved});
       }},
      {"Metaspace", [](const JsonView& json, std::vector<P>& all) { all.emplace_back(metaspace_of(json)); }},
      {"Sequence",
       [](const JsonView& json, std::vector<P>& all) {
         json.only({"type", "pretokenizers"});
         for (const JsonView& item : json.at("pretokenizers").items()) read_pre_tokenizer(item, all);
       }},
  };
  read_by_type(json, kReaders, steps);
  check_number(json, steps);
}

void read_decoder(const JsonView& json, std::vector<Decoder>& decoders) {
  using D = Decoder;
  static const Readers<D> kReaders = {
      {"ByteLevel",
       [](const JsonView& json, std::vector<D>& all) {
         check_byte_level(json);
         all.emplace_back(ByteLevelDecoder{});
       }},
      {"ByteFallback", plain<D>(ByteFallbackDecoder{})},
      {"Fuse", plain<D>(FuseDecoder{})},
      {"BPEDecoder",
       [](const JsonView& json, std::vector<D>& all) {
         json.only({"type", "suffix"});
         if (json.text("suffix").empty()) json.at("suffix").refuse("must not be empty");
         all.emplace_back(BpeDecoder{json.text("suffix")});
       }},
      {"WordPiece",
       [](const JsonView& json, std::vector<D>& all) {
         json.only({"type", "prefix", "cleanup"});
         all.emplace_back(WordPieceDecoder{json.text("prefix"), json.boolean("cleanup")});
       }},
      {"Metaspace",
       [](const JsonView& json, std::vector<D>& all) {
         const bool drop = metaspace_of(json).prepend != MetaspaceStep::Prepend::kNever;
         all.emplace_back(MetaspaceDecoder{json.text("replacement"), drop});
       }},
      {"Strip",
       [](const JsonView& json, std::vector<D>& all) {
         json.only({"type", "content", "start", "stop"});
         all.emplace_back(StripDecoder{one_char(json.at("content")), json.at("start").integer(0, 1 << 20),
                                       json.at("stop").integer(0, 1 << 20)});
       }},
      {"Replace", read_replace_decoder},
      {"Sequence",
       [](const JsonView& json, std::vector<D>& all) {
         json.only({"type", "decoders"});
         const std::vector<JsonView> items = json.at("decoders").items();
         for (const JsonView& item : items) read_decoder(item, all);
         if (items.empty())
           all.emplace_back(FuseDecoder{});  // joined, and not by spaces as without a decoder
       }},
  };
  read_by_type(json, kReaders, decoders);
  check_number(json, decoders);
}

PostProcessor read_post_processor(const JsonView& json, std::int64_t vocab_size) {
  const std::string type = json.text("type");
  if (type == "TemplateProcessing") return template_processor(json, vocab_size);
  if (type == "BertProcessing") return bert_processor(json, vocab_size);
  if (type == "RobertaProcessing") return roberta_processor(json, vocab_size);
  if (type == "Sequence") return processor_sequence(json, vocab_size);
  if (type == "ByteLevel") return check_byte_level(json), PostProcessor();
  json.at("type").refuse(
      "must be one of TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel, Sequence",
      fmt::format("'{}'", type), "use a tokenizer without this part");
}

}  // namespace colonnade::tokenizers
