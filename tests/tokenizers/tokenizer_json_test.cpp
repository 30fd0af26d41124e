// tokenizer.json files compared with recorded ids, pairs and texts of Hugging Face tokenizers, and invalid
// files.
#include "colonnade/tokenizers/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "colonnade/base/error.h"
#include "support/files.h"

namespace colonnade::tokenizers {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

std::vector<json> read_lines(const std::string& name) {
  std::vector<json> lines;
  std::ifstream in(test::vector_path("tokenizers/" + name));
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line));
  return lines;
}

class ReferenceVectors : public ::testing::TestWithParam<std::string> {};

/// The tokenizers of the manifest that have a tokenizer.json; without a manifest, a name whose tests fail.
std::vector<std::string> recorded_tokenizer_json() {
  if (!std::filesystem::exists(test::vector_path("tokenizers/manifest.json"))) return {"no_manifest"};
  std::vector<std::string> names;
  const json manifest = json::parse(read_file(test::vector_path("tokenizers/manifest.json")));
  for (const auto& [name, about] : manifest.at("tokenizers").items())
    if (std::filesystem::exists(test::vector_path("tokenizers/" + name + ".json"))) names.push_back(name);
  return names;
}

TEST_P(ReferenceVectors, MatchIdsAndTexts) {
  const auto tokenizer =
      read_tokenizer_json(test::vector_path(std::string("tokenizers/") + GetParam() + ".json"));
  const auto inputs = read_lines("inputs.jsonl");
  const auto expected = read_lines(std::string(GetParam()) + ".expected.jsonl");
  ASSERT_GT(inputs.size(), 0U);
  ASSERT_EQ(expected.size(), inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string text = inputs[i]["text"];
    const Ids special = expected[i]["ids_special"];
    EXPECT_EQ(tokenizer->encode(text), expected[i]["ids"].get<Ids>()) << text;
    EXPECT_EQ(tokenizer->encode_with_special(text), special) << text;
    EXPECT_EQ(tokenizer->decode(special), expected[i]["decoded"].get<std::string>()) << text;
    EXPECT_EQ(tokenizer->decode_with_special(special), expected[i]["decoded_keep"].get<std::string>())
        << text;
  }
}

TEST_P(ReferenceVectors, MatchPairs) {
  const auto tokenizer =
      read_tokenizer_json(test::vector_path(std::string("tokenizers/") + GetParam() + ".json"));
  int count = 0;
  for (const json& pair : read_lines("pairs.jsonl")) {
    if (pair["tokenizer"] != GetParam()) continue;
    const Encoding encoding =
        tokenizer->encode_pair(pair["a"].get<std::string>(), pair["b"].get<std::string>(), true);
    EXPECT_EQ(encoding.ids, pair["ids"].get<Ids>()) << pair["a"] << pair["b"];
    EXPECT_EQ(encoding.type_ids, pair["type_ids"].get<Ids>()) << pair["a"] << pair["b"];
    ++count;
  }
  EXPECT_GT(count, 0);
}

TEST_P(ReferenceVectors, MatchTheVocabularySize) {
  const auto tokenizer =
      read_tokenizer_json(test::vector_path(std::string("tokenizers/") + GetParam() + ".json"));
  const json manifest = json::parse(read_file(test::vector_path("tokenizers/manifest.json")));
  EXPECT_EQ(tokenizer->vocab_size(), manifest["tokenizers"][GetParam()]["vocab"].get<std::int64_t>());
}

INSTANTIATE_TEST_SUITE_P(TokenizerJson, ReferenceVectors, ::testing::ValuesIn(recorded_tokenizer_json()),
                         [](const auto& info) { return info.param; });

/// A small BPE tokenizer that the tests edit.
json small() {
  return json::parse(R"(
  {
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 4, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true}],
    "normalizer": null, "pre_tokenizer": null, "post_processor": null, "decoder": {"type": "Fuse"},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
              "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
              "vocab": {"a": 0, "b": 1, "ab": 2, "abab": 3}, "merges": [["a", "b"], "ab ab"]}
  }
  )");
}

std::unique_ptr<HfTokenizer> read(const json& file) {
  const test::TempFolder folder;
  std::ofstream(folder / "tokenizer.json") << file.dump();
  return read_tokenizer_json(folder / "tokenizer.json");
}

/// `small()` with another value at a JSON pointer.
std::unique_ptr<HfTokenizer> edited(const char* pointer, const json& value) {
  json file = small();
  file[json::json_pointer(pointer)] = value;
  return read(file);
}

TEST(TokenizerJson, MergesInTheOrderOfTheFile) {
  const auto tokenizer = read(small());
  EXPECT_EQ(tokenizer->encode("ababba<s>ab"), (Ids{3, 1, 0, 4, 2}));
  EXPECT_EQ(tokenizer->decode(Ids{3, 4, 1}), "ababb");
  EXPECT_EQ(tokenizer->decode_with_special(Ids{3, 4, 1}), "abab<s>b");
  EXPECT_THROW((void)tokenizer->decode(Ids{5}), DataError);
  EXPECT_THROW((void)tokenizer->encode("\xff"), DataError);
}

/// As in Transformers, these settings apply to batches only.
TEST(TokenizerJson, TruncationAndPaddingDoNotChangeIds) {
  json file = small();
  file["truncation"] = {
      {"direction", "Right"}, {"max_length", 2}, {"strategy", "LongestFirst"}, {"stride", 0}};
  file["padding"] = {{"strategy", {{"Fixed", 32}}},
                     {"direction", "Right"},
                     {"pad_to_multiple_of", nullptr},
                     {"pad_id", 0},
                     {"pad_type_id", 0},
                     {"pad_token", "a"}};
  EXPECT_EQ(read(file)->encode("ababba<s>ab"), (Ids{3, 1, 0, 4, 2}));
  EXPECT_EQ(read(file)->encode_with_special("ababba<s>ab"), (Ids{3, 1, 0, 4, 2}));
}

TEST(TokenizerJson, LongWordsMergeAsShortOnes) {
  json file = small();
  const auto tokenizer = read(file);
  std::string text;
  Ids ids;
  for (int i = 0; i < 100'000; ++i) {
    text += "ababa";
    ids.insert(ids.end(), {3, 0});
  }
  EXPECT_EQ(tokenizer->encode(text), ids);
}

TEST(TokenizerJson, AddedTokensHonourStripAndSingleWord) {
  json file = small();
  file["model"]["vocab"][" "] = 4;
  json& token = file["added_tokens"][0];
  token["id"] = 5;
  EXPECT_EQ(read(file)->encode("a <s> b"), (Ids{0, 4, 5, 4, 1}));
  token["rstrip"] = true;
  EXPECT_EQ(read(file)->encode("a <s> b"), (Ids{0, 4, 5, 1}));
  token["lstrip"] = true;
  EXPECT_EQ(read(file)->encode("a <s> b"), (Ids{0, 5, 1}));
  token["single_word"] = true;
  EXPECT_EQ(read(file)->encode("a<s> <s>"), (Ids{0, 5})) << "a word character precedes the first one";
  token["content"] = "aba";
  EXPECT_EQ(read(file)->encode("aba ababa"), (Ids{5, 3, 0}));
}

TEST(TokenizerJson, InvalidBytesDecodeToReplacementCharacters) {
  json file = small();
  file["model"]["vocab"]["<0xC3>"] = 4;
  file["model"]["vocab"]["<0xA9>"] = 5;
  file["model"]["byte_fallback"] = true;
  file["added_tokens"][0]["id"] = 6;
  file["decoder"] = {{"type", "Sequence"}, {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}};
  const auto tokenizer = read(file);
  EXPECT_EQ(tokenizer->encode("a\xC3\xA9"), (Ids{0, 4, 5}));
  EXPECT_EQ(tokenizer->decode(Ids{0, 4, 5, 1}),
            "a\xC3\xA9"
            "b");
  EXPECT_EQ(tokenizer->decode(Ids{4, 4, 1}),
            "\xEF\xBF\xBD\xEF\xBF\xBD"
            "b");
}

TEST(TokenizerJson, ErrorsNameTheJsonPathOfUnknownComponents) {
  const auto message = [](const char* pointer, const json& value) {
    return test::message_of<DataError>([&] { (void)edited(pointer, value); });
  };
  EXPECT_THAT(message("/normalizer", {{"type", "Rot13"}}),
              AllOf(HasSubstr("tokenizer.json: normalizer.type"), HasSubstr("'Rot13'"), HasSubstr("NFKC")));
  EXPECT_THAT(
      message("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "X"}}}}}),
      HasSubstr("normalizer.normalizers[1].type"));
  EXPECT_THAT(message("/normalizer", {{"type", "NFC"}, {"more", 1}}), HasSubstr("normalizer.more"));
  EXPECT_THAT(message("/pre_tokenizer", {{"type", "UnicodeScripts"}}), HasSubstr("pre_tokenizer.type"));
  EXPECT_THAT(message("/decoder", {{"type", "CTC"}}), HasSubstr("decoder.type"));
  EXPECT_THAT(message("/post_processor", {{"type", "X"}}), HasSubstr("post_processor.type"));
  EXPECT_THAT(message("/model/type", "Markov"), HasSubstr("model.type"));
  EXPECT_THAT(message("/extra", 1), HasSubstr("extra"));
  EXPECT_THAT(message("/truncation", {{"most", 5}}), HasSubstr("truncation.most"));
  EXPECT_THAT(message("/padding", {{"with", "x"}}), HasSubstr("padding.with"));
  EXPECT_THAT(message("/model/dropout", 0.1), HasSubstr("model.dropout"));
  EXPECT_THAT(message("/version", "2.0"), HasSubstr("version"));
}

TEST(TokenizerJson, HostileFilesAreErrors) {
  const auto message = [](const char* pointer, const json& value) {
    return test::message_of<DataError>([&] { (void)edited(pointer, value); });
  };
  EXPECT_THAT(message("/model/vocab/a", 4'000'000'000), HasSubstr("model.vocab"));
  EXPECT_THAT(message("/model/vocab/a", -1), HasSubstr("model.vocab.a"));
  EXPECT_THAT(message("/model/vocab/a", "0"), HasSubstr("model.vocab.a"));
  EXPECT_THAT(message("/model/vocab/a", 1), HasSubstr("every id must have one token"));
  EXPECT_THAT(message("/model/vocab/a", 16'000'000), HasSubstr("ids must be 0 to"));
  EXPECT_THAT(message("/model/vocab", json::array()), HasSubstr("model.vocab"));
  EXPECT_THAT(message("/model/merges", 5), HasSubstr("model.merges"));
  EXPECT_THAT(message("/model/merges/1", "a b c"), HasSubstr("model.merges.[1]"));
  EXPECT_THAT(message("/model/merges/1", {"a"}), HasSubstr("model.merges.[1]"));
  EXPECT_THAT(message("/model/merges/1", {"a", "z"}), HasSubstr("'z'"));
  EXPECT_THAT(message("/model/merges/1", {"b", "a"}), HasSubstr("'ba'"));
  EXPECT_THAT(message("/model/merges/1", {"a", "b"}), HasSubstr("merged once"));
  EXPECT_THAT(message("/model/unk_token", "?"), HasSubstr("model.unk_token"));
  EXPECT_THAT(message("/added_tokens/0/id", 9),
              AllOf(HasSubstr("added_tokens[0].id"), HasSubstr("must be 4")));
  EXPECT_THAT(message("/added_tokens/0/content", ""), HasSubstr("added_tokens[0].content"));
  EXPECT_THAT(message("/added_tokens/1", small()["added_tokens"][0]), HasSubstr("added_tokens[1].content"));
  EXPECT_THAT(message("/added_tokens/0/content", std::string(5000, 'x')), HasSubstr("4096"));
  for (const char* regex : {"(", "[a", "a{2,1}", "(?<=a+)b", "[a&&]", "[[a]b", "\\h", "a\\b+", "(?m:.)",
                            "(a)\\1", "(?m)a", "a{,3}", "a{1,2}+", "(*FAIL)"})
    EXPECT_THAT(message("/pre_tokenizer", {{"type", "Split"},
                                           {"pattern", {{"Regex", regex}}},
                                           {"behavior", "Isolated"},
                                           {"invert", false}}),
                HasSubstr("pre_tokenizer.pattern"))
        << regex;
  const auto slow = edited("/pre_tokenizer", {{"type", "Split"},
                                              {"pattern", {{"Regex", "(?:a|aa)*[bc]"}}},
                                              {"behavior", "Isolated"},
                                              {"invert", false}});
  EXPECT_THROW((void)slow->encode(std::string(3000, 'a')), DataError) << "catastrophic backtracking";
  for (const char* map : {"", "AA==", "////////", "!!!"})
    EXPECT_THAT(message("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", map}}),
                HasSubstr("normalizer.precompiled_charsmap"))
        << map;
  json deep = {{"type", "NFC"}};
  for (int i = 0; i < 100; ++i) deep = {{"type", "Sequence"}, {"normalizers", {deep}}};
  EXPECT_THAT(message("/normalizer", deep), HasSubstr("must be JSON"));
}

json split_at(const char* regex, const char* behavior) {
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", behavior}, {"invert", false}};
}

TEST(TokenizerJson, EmptyMatchesSplitAsInHuggingFace) {
  for (const char* behavior : {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"})
    EXPECT_EQ(edited("/pre_tokenizer", split_at("(?=a)", behavior))->encode("abab"), (Ids{2, 2})) << behavior;
  EXPECT_EQ(edited("/pre_tokenizer", nullptr)->encode("abab"), Ids{3});
}

TEST(TokenizerJson, EmptyMatchesAreReplacedAsInHuggingFace) {
  const std::array<std::array<const char*, 4>, 5> kCases = {{{"^", "aabab", "abb", "ab\nab"},
                                                             {"b*", "aaaaa", "a", "a\na"},
                                                             {"a|", "ababa", "ababa", "aba\naba"},
                                                             {"(?=b)", "aabaab", "abab", "ab\nab"},
                                                             {"$", "ababa", "bba", "ba\nba"}}};
  json file = small();
  file["model"]["vocab"]["\n"] = 5;
  file["model"]["merges"] = json::array();
  file["added_tokens"] = json::array();
  for (const auto& [regex, first, second, third] : kCases) {
    const json replace = {{"type", "Replace"}, {"pattern", {{"Regex", regex}}}, {"content", "a"}};
    file["normalizer"] = replace;
    file["decoder"] = {{"type", "Fuse"}};
    const auto tokenizer = read(file);
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("abab")), first) << regex;
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("bb")), second) << regex;
    EXPECT_EQ(tokenizer->decode(tokenizer->encode("b\nb")), third) << regex;
    file["normalizer"] = nullptr;
    file["decoder"] = {{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, replace}}};
    EXPECT_EQ(read(file)->decode(Ids{2, 2}), first) << regex;
  }
}

TEST(TokenizerJson, TheLastDuplicateInAUnigramVocabularyWins) {
  json file = small();
  file["added_tokens"][0]["id"] = 5;
  file["model"] = json::parse(R"({"type": "Unigram", "unk_id": 0,
                      "vocab": [["<unk>", 0], ["ab", -1], ["a", -3], ["b", -3], ["ab", -9]]})");
  EXPECT_EQ(read(file)->encode("abab<s>"), (Ids{2, 3, 2, 3, 5}));
  EXPECT_EQ(read(file)->id_of("ab"), 4);
  EXPECT_EQ(read(file)->decode_with_special(Ids{1, 4, 2}), "ababa");
  file["model"]["vocab"][4][1] = -2;
  EXPECT_EQ(read(file)->encode("abab<s>"), (Ids{4, 4, 5}));
  EXPECT_EQ(read(file)->vocab_size(), 6);
}

TEST(TokenizerJson, RejectsAddedTokensWithEqualNormalizedContents) {
  json file = small();
  file["normalizer"] = {{"type", "Lowercase"}};
  json token = file["added_tokens"][0];
  token["normalized"] = true;
  for (const auto& [content, id] : {std::pair{"Day", 5}, {"day", 6}}) {
    token["content"] = content;
    token["id"] = id;
    file["added_tokens"].push_back(token);
  }
  EXPECT_THAT(test::message_of<DataError>([&] { (void)read(file); }),
              AllOf(HasSubstr("added_tokens"), HasSubstr("'Day' and 'day'")));
  file["added_tokens"][2]["normalized"] = false;
  EXPECT_EQ(read(file)->encode("dayDay"), (Ids{6, 5}));
}

/// The expected ids are those of Hugging Face tokenizers 0.23.3.
TEST(TokenizerJson, StripRemovesSpaceFromTheGivenSides) {
  json file = small();
  file["model"]["vocab"] = {{"a", 0}, {" ", 1}};
  file["model"]["merges"] = json::array();
  file["added_tokens"] = json::array();
  const auto ids = [&](bool left, bool right, const char* text) {
    file["normalizer"] = {{"type", "Strip"}, {"strip_left", left}, {"strip_right", right}};
    return read(file)->encode(text);
  };
  EXPECT_EQ(ids(true, false, "  a "), (Ids{0, 1}));
  EXPECT_EQ(ids(false, true, "  a "), (Ids{1, 1, 0}));
  EXPECT_EQ(ids(true, true, "  a "), Ids{0});
  EXPECT_EQ(ids(false, false, "  a "), (Ids{1, 1, 0, 1}));
  for (const auto& [left, right] : {std::pair{true, false}, {false, true}, {true, true}})
    EXPECT_EQ(ids(left, right, "   "), Ids{}) << left << right;
}

/// The expected ids are those of Hugging Face tokenizers 0.23.3: marks of Unicode 9 are sorted by combining
/// class, but not later ones such as U+1DF9 of Unicode 10, whose class is 220.
TEST(TokenizerJson, MarksNewerThanUnicode9AreNotReordered) {
  json file = small();
  file["model"]["vocab"] = {{"\u1de9", 0}, {"\u1dc8", 1}, {"\u1df9", 2}, {"\u1dc0", 3}, {"\u0323", 4}};
  file["model"]["merges"] = json::array();
  file["added_tokens"] = json::array();
  for (const char* form : {"NFC", "NFD", "NFKC", "NFKD"}) {
    file["normalizer"] = {{"type", form}};
    EXPECT_EQ(read(file)->encode("\u1de9\u1dc8\u1df9\u1dc0"), (Ids{0, 1, 2, 3})) << form;
    EXPECT_EQ(read(file)->encode("\u1de9\u1dc8\u0323\u1dc0"), (Ids{4, 0, 1, 3})) << form;
  }
}

TEST(TokenizerJson, NormalizersMustNotGrowTextsWithoutBound) {
  for (const json& pattern : {json{{"String", "a"}}, json{{"Regex", "a"}}}) {
    const json replace = {{"type", "Replace"}, {"pattern", pattern}, {"content", std::string(64, 'a')}};
    const auto tokenizer =
        edited("/normalizer", {{"type", "Sequence"}, {"normalizers", json::array_t(5, replace)}});
    EXPECT_THAT(test::message_of<DataError>([&] { (void)tokenizer->encode("a"); }),
                HasSubstr("normalized text"));
    EXPECT_EQ(tokenizer->encode("b"), Ids{1});
  }
  const json lower = {{"type", "Lowercase"}};
  EXPECT_THAT(
      test::message_of<DataError>([&] {
        (void)edited("/normalizer", {{"type", "Sequence"}, {"normalizers", json::array_t(65, lower)}});
      }),
      HasSubstr("normalizers[64] must have at most 64 steps; got 65"));
  const json grown = {{"type", "Prepend"}, {"prepend", std::string(2 << 20, 'a')}};
  EXPECT_THROW((void)edited("/normalizer", grown)->encode("b"), DataError);
}

TEST(TokenizerJson, PreTokenizersAndDecodersMustNotGrowTextsWithoutBound) {
  const json bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const auto doubled =
      edited("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", json::array_t(34, bytes)}});
  EXPECT_THAT(test::message_of<DataError>([&] { (void)doubled->encode("\xC3\xA9"); }),
              HasSubstr("pre_tokenizer"));
  EXPECT_THAT(
      test::message_of<DataError>([&] {
        (void)edited("/pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", json::array_t(65, bytes)}});
      }),
      HasSubstr("at most 64 steps"));
  EXPECT_THAT(
      test::message_of<DataError>([&] {
        (void)edited("/decoder", {{"type", "Sequence"}, {"decoders", json::array_t(65, {{"type", "Fuse"}})}});
      }),
      HasSubstr("decoders[64] must have at most 64 steps; got 65"));
  for (const json& pattern : {json{{"String", "a"}}, json{{"Regex", "a"}}}) {
    const json replace = {{"type", "Replace"}, {"pattern", pattern}, {"content", std::string(64, 'a')}};
    const auto tokenizer =
        edited("/decoder", {{"type", "Sequence"}, {"decoders", json::array_t(9, replace)}});
    EXPECT_THAT(test::message_of<DataError>([&] { (void)tokenizer->decode(Ids{0}); }), HasSubstr("decoder"));
    EXPECT_EQ(tokenizer->decode(Ids{1}), "b");
  }
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const json often = {{"type", "TemplateProcessing"},
                      {"single", json::array_t(9, text)},
                      {"pair", json::array()},
                      {"special_tokens", json::object()}};
  EXPECT_THAT(test::message_of<DataError>([&] { (void)edited("/post_processor", often); }),
              AllOf(HasSubstr("post_processor.single"), HasSubstr("at most 8 times")));
}

TEST(TokenizerJson, TheGrowthLimitCountsAllWords) {
  json file = json::parse(read_file(test::vector_path("tokenizers/t5_unigram.json")));
  file["normalizer"] = {
      {"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(1 << 19, 'b')}};
  const auto tokenizer = read(file);
  std::string words;
  for (int i = 0; i < 40; ++i) words += "a" + std::to_string(i) + " ";
  EXPECT_THAT(test::message_of<DataError>([&] { (void)tokenizer->encode(words); }),
              HasSubstr("must not grow"));
}

TEST(TokenizerJson, LongTokensHaveBoundedCost) {
  const std::string longest(4000, 'a'), longer(5000, 'a');
  const json unigram = {{"type", "Unigram"},
                        {"unk_id", 0},
                        {"vocab", json::array({json::array({"<unk>", 0}), json::array({longer, -1})})}};
  const auto word_piece = [](const std::string& token) {
    return json{{"type", "WordPiece"},
                {"unk_token", "?"},
                {"continuing_subword_prefix", "##"},
                {"max_input_chars_per_word", 10'000},
                {"vocab", {{"?", 0}, {"a", 1}, {"##a", 2}, {"##" + token, 3}}}};
  };
  for (const json& model : {unigram, word_piece(longer)})
    EXPECT_THAT(
        test::message_of<DataError>([&] { (void)edited("/model", model); }),
        HasSubstr("model.vocab must have tokens of at most 4096 bytes, 8388608 in all; got one of 500"));
  json file = small();
  file["added_tokens"] = json::array();
  file["model"] = word_piece(longest + "b");
  const Ids ids = read(file)->encode(std::string(9999, 'a'));  // every position tries the longest token
  EXPECT_EQ(ids.size(), 9999U);
  EXPECT_EQ(ids[0], 1);
  EXPECT_EQ(ids[1], 2);
  EXPECT_EQ(read(file)->encode(std::string(10'000, 'a') + "b"), Ids{0});
}

TEST(TokenizerJson, RejectsFilesThatAreNotAnObjectOrHaveAByteOrderMark) {
  EXPECT_THAT(test::message_of<DataError>([] { (void)parse_tokenizer_json("t.json", "[1]"); }),
              HasSubstr("t.json must be an object"));
  EXPECT_THAT(test::message_of<DataError>([] { (void)parse_tokenizer_json("t.json", "{\n\t\"a\": x"); }),
              HasSubstr("t.json must be JSON; got '{  \"a\": x' ("));
  EXPECT_THAT(test::message_of<DataError>(
                  [] { (void)parse_tokenizer_json("t.json", "\xEF\xBB\xBF" + small().dump()); }),
              HasSubstr("byte order mark"));
}

TEST(TokenizerJson, AnEmptyDecoderSequenceJoinsTokens) {
  EXPECT_EQ(edited("/decoder", {{"type", "Sequence"}, {"decoders", json::array()}})->decode(Ids{0, 1}), "ab");
  EXPECT_EQ(edited("/decoder", nullptr)->decode(Ids{0, 1}), "a b");
}

TEST(TokenizerJson, CorruptedFilesNeverCrash) {
  const std::string text = read_file(test::vector_path("tokenizers/llama2_json.json"));
  const test::TempFolder folder;
  std::uint64_t state = 1;
  const auto random = [&state](std::size_t below) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::size_t>(state >> 33) % below;
  };
  int still_valid = 0;
  for (int round = 0; round < 200; ++round) {
    std::string broken = text;
    if (round % 2 == 0) broken.resize(random(broken.size()));
    for (int i = 0; i < 3 && !broken.empty(); ++i)
      broken[random(std::min<std::size_t>(broken.size(), 3000))] =
          static_cast<char>("{}[]\",:019nt\\"[random(13)]);
    std::ofstream(folder / "t.json", std::ios::trunc) << broken;
    try {
      still_valid += static_cast<int>(!read_tokenizer_json(folder / "t.json")->encode("some text").empty());
    } catch (const DataError&) {
    }
  }
  EXPECT_LT(still_valid, 200);
}

}  // namespace
}  // namespace colonnade::tokenizers
