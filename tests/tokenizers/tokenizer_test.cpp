// SentencePiece tokenizers compared with recorded ids and texts of the library, and models trained here.
#include "colonnade/tokenizers/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "colonnade/base/error.h"
#include "support/files.h"
#include "tokenizers/training_texts.h"

namespace colonnade::tokenizers {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

std::vector<nlohmann::json> read_lines(const std::string& name) {
  std::vector<nlohmann::json> lines;
  std::ifstream in(test::vector_path(name));
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

void expect_conformance(const std::string& model, const std::string& type) {
  const auto tokenizer =
      make_tokenizer({.type = type, .model = test::vector_path("tokenizers/" + model + ".model")});
  const auto inputs = read_lines("tokenizers/inputs.jsonl");
  const auto expected = read_lines("tokenizers/" + model + ".expected.jsonl");
  ASSERT_GT(inputs.size(), 0U);
  ASSERT_EQ(expected.size(), inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string text = inputs[i]["text"];
    const Ids ids = expected[i]["ids"];
    EXPECT_EQ(tokenizer->decode(ids), expected[i]["decoded"].get<std::string>()) << text;
    EXPECT_EQ(tokenizer->encode(text), ids) << text;
    EXPECT_EQ(tokenizer->encode_with_special(text), expected[i]["ids_special"].get<Ids>()) << text;
  }
}

TEST(Tokenizer, SentencePieceBpeMatchesReferenceIds) {
  expect_conformance("llama2_sp_bpe", "Llama2Tokenizer");
  const auto tokenizer = make_tokenizer(
      {.type = "GPTSentencePieceTokenizer", .model = test::vector_path("tokenizers/llama2_sp_bpe.model")});
  EXPECT_EQ(tokenizer->vocab_size(), 2000);
  EXPECT_EQ(tokenizer->eod(), 2);
  EXPECT_EQ(tokenizer->special().bos, 1);
  EXPECT_EQ(tokenizer->special().pad, -1);
}

TEST(Tokenizer, SentencePieceUnigramMatchesReferenceIds) {
  expect_conformance("sp_unigram", "SentencePieceTokenizer");
}

/// The expected ids are those of AutoTokenizer of Transformers 5.23 for such folders.
TEST(Tokenizer, PromptsOfASentencePieceFolderHaveTheBosOfTransformers) {
  const test::TempFolder folder;
  std::filesystem::copy_file(test::vector_path("tokenizers/llama2_sp_bpe.model"), folder / "tokenizer.model");
  const auto prompt = [&](const char* config) {
    std::ofstream(folder / "tokenizer_config.json") << config;
    const auto tokenizer = make_tokenizer({.type = "SentencePieceTokenizer", .model = folder / ""});
    EXPECT_EQ(tokenizer->encode_document("the quick"), (Ids{286, 343, 887})) << "as Megatron's preprocess";
    EXPECT_EQ(encode_prompt(*tokenizer, ""), Ids{});
    return encode_prompt(*tokenizer, "the quick");
  };
  const Ids text{286, 343, 887}, with_bos{1, 286, 343, 887};
  EXPECT_EQ(prompt(R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true})"), with_bos);
  EXPECT_EQ(prompt(R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "add_eos_token": true})"),
            with_bos);
  EXPECT_EQ(prompt(R"({"add_bos_token": true, "bos_token": {"content": "</s>"}})"), (Ids{2, 286, 343, 887}));
  EXPECT_EQ(prompt(R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "bos_token": null})"),
            text);
  EXPECT_EQ(prompt(R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": false})"), text);
  EXPECT_EQ(prompt(R"({"tokenizer_class": "LlamaTokenizer"})"), text);
  EXPECT_EQ(prompt(R"({"tokenizer_class": "CodeLlamaTokenizer"})"), with_bos);
  EXPECT_EQ(prompt(R"({"tokenizer_class": "CodeLlamaTokenizer", "add_bos_token": false})"), text);
  EXPECT_EQ(prompt(R"({"tokenizer_class": "SentencePieceBackend", "add_bos_token": true})"), text);
  prompt(R"({"tokenizer_class": "LlamaTokenizer", "add_bos_token": true})");
  const auto file = make_tokenizer({.type = "SentencePieceTokenizer", .model = folder / "tokenizer.model"});
  EXPECT_EQ(encode_prompt(*file, "the quick"), text) << "a file without a folder";
}

TEST(Tokenizer, NullTokenizerReadsIntegers) {
  const auto tokenizer = make_tokenizer({.type = "NullTokenizer", .vocab_size = 100});
  EXPECT_EQ(tokenizer->encode("5 0  99"), (Ids{5, 0, 99}));
  EXPECT_EQ(tokenizer->decode(Ids{5, 0, 99}), "5 0 99");
  EXPECT_EQ(tokenizer->eod(), 99);
  for (const char* wrong : {"100", "-1", "1.5", "x", "99999999999999999999"})
    EXPECT_THROW((void)tokenizer->encode(wrong), DataError) << wrong;
  EXPECT_THROW((void)tokenizer->decode(Ids{100}), DataError);
}

TEST(Tokenizer, ErrorsNameTheFlagOrFile) {
  EXPECT_THAT(test::message_of<ConfigError>([] { (void)make_tokenizer({.type = "X"}); }),
              HasSubstr("--tokenizer-type"));
  EXPECT_THAT(test::message_of<ConfigError>([] { (void)make_tokenizer({.type = "NullTokenizer"}); }),
              HasSubstr("--vocab-size"));
  EXPECT_THAT(test::message_of<ConfigError>([] { (void)make_tokenizer({.type = "Llama2Tokenizer"}); }),
              HasSubstr("--tokenizer-model"));
  EXPECT_THAT(test::message_of<DataError>(
                  [] { (void)make_tokenizer({.type = "Llama2Tokenizer", .model = "/nothing"}); }),
              HasSubstr("/nothing"));
  const std::string text = test::vector_path("tokenizers/manifest.json");
  EXPECT_THAT(
      test::message_of<DataError>([&] { (void)make_tokenizer({.type = "Llama2Tokenizer", .model = text}); }),
      HasSubstr("SentencePiece"));
}

TEST(Tokenizer, RejectsOptionsOfOtherTypes) {
  const auto error_of = [](const TokenizerOptions& options) {
    return test::message_of<ConfigError>([&] { (void)make_tokenizer(options); });
  };
  EXPECT_EQ(
      error_of({.type = "HuggingFaceTokenizer", .model = "m", .vocab_size = 7}),
      "--vocab-size requires --tokenizer-type TikTokenizer, NullTokenizer; got 7 with HuggingFaceTokenizer; "
      "remove the flag, or change --tokenizer-type");
  EXPECT_THAT(
      error_of({.type = "HuggingFaceTokenizer", .model = "m", .vocab_file = "v"}),
      HasSubstr(
          "--vocab-file requires --tokenizer-type GPT2BPETokenizer, BertWordPieceLowerCase, BertWordPieceCase"));
  EXPECT_THAT(error_of({.type = "BertWordPieceCase", .model = "m", .merge_file = "x"}),
              HasSubstr("--merge-file"));
  EXPECT_THAT(error_of({.type = "Llama2Tokenizer", .model = "m", .special_in_documents = false}),
              HasSubstr("--tokenizer-hf-no-include-special-tokens"));
  EXPECT_THAT(error_of({.type = "Llama2Tokenizer", .model = "m", .tiktoken_pattern = "v1"}),
              HasSubstr("--tiktoken-pattern"));
  EXPECT_THAT(error_of({.type = "NullTokenizer", .vocab_size = 5, .tiktoken_num_special = 7}),
              HasSubstr("--tiktoken-num-special-tokens"));
}

TEST(Tokenizer, TrainedModelsAreLosslessAndDeterministic) {
  std::vector<std::string> texts;
  std::ifstream in(test::vector_path("indexed/corpus_gpt2.jsonl"));
  for (std::string line; std::getline(in, line);) texts.push_back(nlohmann::json::parse(line)["text"]);
  const test::TempFolder folder;
  for (const char* type : {"bpe", "unigram"}) {
    const std::string model =
        train_sentencepiece(stream_of(texts), {.model_type = type, .vocab_size = 420}).model;
    EXPECT_TRUE(model == train_sentencepiece(stream_of(texts), {.model_type = type, .vocab_size = 420}).model)
        << type;
    std::ofstream(folder / "m.model", std::ios::binary) << model;
    const auto tokenizer = make_tokenizer({.type = "SentencePieceTokenizer", .model = folder / "m.model"});
    EXPECT_EQ(tokenizer->vocab_size(), 420);
    for (const std::string text :
         {"The quiet river.", "  two  spaces ", "\xe2\x82\xac\xf0\x9f\x98\x80 unseen", "line\nline"})
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << type;
    EXPECT_LT(tokenizer->encode(texts[0]).size(), texts[0].size() / 2);
  }
  EXPECT_THROW((void)train_sentencepiece(stream_of({"a"}), {.vocab_size = 4000}), DataError);
}

TEST(Tokenizer, TrainingSamplesAtMostMaxLines) {
  std::vector<std::string> lines;
  for (int i = 0; i < 1000; ++i) lines.push_back(i % 2 == 0 ? "even ways are smooth" : "odd ones never");
  const auto pieces = [](const TrainedSentencePiece& trained) {
    const test::TempFolder folder;
    std::ofstream(folder / "m.model", std::ios::binary) << trained.model;
    const auto tokenizer = make_tokenizer({.type = "SentencePieceTokenizer", .model = folder / "m.model"});
    std::vector<std::string> all;
    for (std::int32_t id = 0; id < tokenizer->vocab_size(); ++id) all.push_back(tokenizer->piece_of(id));
    return all;
  };
  SentencePieceTraining training{.vocab_size = 300};
  const TrainedSentencePiece whole = train_sentencepiece(stream_of(lines), training);
  training.max_lines = 0;
  EXPECT_EQ(pieces(train_sentencepiece(stream_of(lines), training)), pieces(whole));
  training.max_lines = 200;
  const TrainedSentencePiece part = train_sentencepiece(stream_of(lines), training);
  EXPECT_TRUE(part.model == train_sentencepiece(stream_of(lines), training).model);
  EXPECT_THAT(pieces(part), ::testing::IsSupersetOf({"\u2581even", "\u2581never"}))
      << "lines are sampled from the whole text";
  lines.insert(lines.begin() + 1, std::string(1'000'001, 'x') + "\n\n");
  const TrainedSentencePiece with_long_line = train_sentencepiece(stream_of(lines), training);
  EXPECT_EQ(with_long_line.lines, 1001);
  EXPECT_EQ(with_long_line.skipped_lines, 1);
  training.max_lines = 100;
  EXPECT_THROW((void)train_sentencepiece(stream_of(lines), training), ConfigError);
}

}  // namespace
}  // namespace colonnade::tokenizers
