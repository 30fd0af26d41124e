// GPT-2's, BERT's and tiktoken's files, and Hugging Face folders, by --tokenizer-type.
#include "colonnade/tokenizers/vocab_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "colonnade/base/error.h"
#include "colonnade/chat_template/chat_template.h"
#include "colonnade/tokenizers/normalizer.h"
#include "support/files.h"

namespace colonnade::tokenizers {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

json file_of(const std::string& name) {
  return json::parse(read_file(test::vector_path("tokenizers/" + name + ".json")));
}

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// Calls use(text, expected) for the inputs and recorded results of a tokenizer.
template <typename Use>
void for_each_expected(const std::string& name, Use&& use) {
  std::ifstream inputs(test::vector_path("tokenizers/inputs.jsonl")),
      results(test::vector_path("tokenizers/" + name + ".expected.jsonl"));
  for (std::string input, result; std::getline(inputs, input) && std::getline(results, result);)
    use(json::parse(input)["text"].get<std::string>(), json::parse(result));
}

TEST(VocabFiles, Gpt2FilesMatchTheirTokenizerJson) {
  const json file = file_of("gpt2_bpe");
  json vocab = file["model"]["vocab"];
  vocab["<|endoftext|>"] = 1024;
  std::string merges = "#version: 0.2\n";
  for (const json& merge : file["model"]["merges"])
    merges += merge[0].get<std::string>() + " " + merge[1].get<std::string>() + "\n";
  const test::TempFolder folder;
  write(folder / "vocab.json", vocab.dump());
  write(folder / "merges.txt", merges);
  const auto tokenizer = make_tokenizer({.type = "GPT2BPETokenizer", .model = folder / ""});
  const auto by_flags = make_tokenizer(
      {.type = "GPT2BPETokenizer", .vocab_file = folder / "vocab.json", .merge_file = folder / "merges.txt"});
  EXPECT_EQ(tokenizer->eod(), 1024);
  EXPECT_EQ(tokenizer->vocab_size(), 1025);
  for_each_expected("gpt2_bpe", [&](const std::string& text, const json& expected) {
    EXPECT_EQ(tokenizer->encode(text), expected["ids"].get<Ids>()) << text;
    EXPECT_EQ(by_flags->decode(expected["ids"].get<Ids>()), expected["decoded"].get<std::string>()) << text;
  });
  write(folder / "merges.txt", "a b c\n");
  EXPECT_THAT(test::message_of<DataError>(
                  [&] { (void)make_tokenizer({.type = "GPT2BPETokenizer", .model = folder / ""}); }),
              HasSubstr("merges.txt line 1"));
  write(folder / "merges.txt", "#version: 0.2\n");
  EXPECT_THAT(test::message_of<DataError>(
                  [&] { (void)make_tokenizer({.type = "GPT2BPETokenizer", .model = folder / ""}); }),
              HasSubstr("merges.txt must have a line of two tokens for each merge; got none"));
  EXPECT_THAT(test::message_of<ConfigError>([&] { (void)make_tokenizer({.type = "GPT2BPETokenizer"}); }),
              HasSubstr("--vocab-file"));
}

TEST(VocabFiles, BertVocabTxtMatchesItsTokenizerJson) {
  const json vocab = file_of("bert_wordpiece")["model"]["vocab"];
  std::vector<std::string> lines(vocab.size());
  for (const auto& [token, id] : vocab.items()) lines[id.get<std::size_t>()] = token;
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  const test::TempFolder folder;
  write(folder / "vocab.txt", text);
  const auto lower = make_tokenizer({.type = "BertWordPieceLowerCase", .vocab_file = folder / "vocab.txt"});
  EXPECT_EQ(lower->eod(), 3) << "[SEP]";
  EXPECT_EQ(lower->special().bos, 2);
  for_each_expected("bert_wordpiece", [&](const std::string& input, const json& expected) {
    EXPECT_EQ(lower->encode(input), expected["ids"].get<Ids>()) << input;
    EXPECT_EQ(lower->encode_with_special(input), expected["ids_special"].get<Ids>()) << input;
    EXPECT_EQ(lower->encode_document(input), expected["ids"].get<Ids>())
        << "data sets add [CLS] and [SEP] themselves";
  });
  const auto cased = make_tokenizer({.type = "BertWordPieceCase", .model = folder / ""});
  EXPECT_EQ(cased->id_of("<extra_id_0>"), 2000);
  EXPECT_EQ(cased->vocab_size(), 2100);
  EXPECT_NE(cased->encode("The"), lower->encode("The"));
  write(folder / "vocab.txt", "a\nb\n");
  EXPECT_THAT(test::message_of<DataError>(
                  [&] { (void)make_tokenizer({.type = "BertWordPieceCase", .model = folder / ""}); }),
              HasSubstr("[UNK]"));
}

TEST(VocabFiles, TiktokenMatchesReferenceIds) {
  std::ifstream lines(test::vector_path("tiktoken/expected.jsonl"));
  std::map<std::string, std::unique_ptr<Tokenizer>> tokenizers;
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const json expected = json::parse(line);
    const std::string pattern = expected["pattern"], text = expected["text"];
    const bool megatron = pattern == "v1" || pattern == "v2";
    auto& tokenizer = tokenizers[pattern];
    if (tokenizer == nullptr)
      tokenizer = make_tokenizer(
          {.type = "TikTokenizer",
           .model = test::vector_path(megatron ? "tiktoken/megatron.json" : "tiktoken/ranks.tiktoken"),
           .vocab_size = megatron ? 1300 : 0,
           .tiktoken_pattern = pattern,
           .tiktoken_num_special = 20});
    EXPECT_EQ(tokenizer->encode(text), expected["ids"].get<Ids>()) << pattern << ": " << text;
  }
  EXPECT_EQ(count, 6 * 186);
  EXPECT_EQ(tokenizers["v2"]->eod(), 2);
  EXPECT_EQ(tokenizers["v2"]->special().pad, 4);
  EXPECT_EQ(tokenizers["v2"]->vocab_size(), 1300);
  EXPECT_EQ(tokenizers["cl100k_base"]->eod(), 1281);
  EXPECT_EQ(tokenizers["llama3"]->id_of("<|eot_id|>"), 1289);
  EXPECT_EQ(tokenizers["gpt2"]->decode(tokenizers["gpt2"]->encode("a \xE2\x82\xAC b")), "a \xE2\x82\xAC b");
}

TEST(VocabFiles, TiktokenErrorsNameTheFault) {
  const test::TempFolder folder;
  const auto message = [&](const std::string& text, const std::string& pattern) {
    write(folder / "r.tiktoken", text);
    const auto run = [&] {
      (void)make_tokenizer(
          {.type = "TikTokenizer", .model = folder / "r.tiktoken", .tiktoken_pattern = pattern});
    };
    return test::message_of<DataError>([&] {
      try {
        run();
      } catch (const ConfigError& error) {
        throw DataError(error.what());
      }
    });
  };
  EXPECT_THAT(message("", ""), HasSubstr("--tiktoken-pattern"));
  EXPECT_THAT(message("", "v1"), HasSubstr("cl100k_base"));
  EXPECT_THAT(message("YQ== 0\n", "gpt2"), HasSubstr("every byte"));
  ::testing::internal::CaptureStderr();
  (void)make_tokenizer({.type = "TikTokenizer",
                        .model = test::vector_path("tiktoken/ranks.tiktoken"),
                        .tiktoken_pattern = "cl100k_base"});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("has 1280 tokens, the published file of cl100k_base has 100256"));
  EXPECT_THAT(message("YQ== 1\n", "gpt2"), HasSubstr("token 0"));
  EXPECT_THAT(message("Y!== 0\n", "gpt2"), HasSubstr("base64"));
  EXPECT_THAT(message("YQ==\n", "gpt2"), HasSubstr("token 0"));
}

/// A folder with llama3_bpe.json as tokenizer.json and a tokenizer_config.json.
class FolderTest : public ::testing::Test {
 protected:
  FolderTest() {
    write(folder_ / "tokenizer.json", read_file(test::vector_path("tokenizers/llama3_bpe.json")));
  }
  std::unique_ptr<Tokenizer> read(const json& config, bool special = true) {
    write(folder_ / "tokenizer_config.json", config.dump());
    return make_tokenizer(
        {.type = "HuggingFaceTokenizer", .model = folder_ / "", .special_in_documents = special});
  }
  test::TempFolder folder_;
};

TEST_F(FolderTest, ConfigNamesSpecialTokens) {
  const auto tokenizer = read({{"bos_token", "<|begin_of_text|>"},
                               {"eos_token", {{"content", "<|eot_id|>"}}},
                               {"pad_token", nullptr}});
  EXPECT_EQ(tokenizer->special().bos, 1280);
  EXPECT_EQ(tokenizer->eod(), 1284);
  EXPECT_EQ(tokenizer->special().pad, -1);
  EXPECT_EQ(read({{"cls_token", "<|begin_of_text|>"}, {"sep_token", "<|end_of_text|>"}})->eod(), 1281)
      << "sep replaces a missing eos";
  EXPECT_THAT(test::message_of<DataError>([&] {
                (void)read({{"added_tokens_decoder", {{"7", {{"content", "<|eot_id|>"}}}}}});
              }),
              HasSubstr("added_tokens_decoder.7"));
}

TEST_F(FolderTest, ReadsPublishedConfigs) {
  const json config = {{"add_prefix_space", nullptr},
                       {"bos_token", "<|begin_of_text|>"},
                       {"clean_up_tokenization_spaces", false},
                       {"eos_token", "<|end_of_text|>"},
                       {"legacy", false},
                       {"model_max_length", "WIDE"},
                       {"model_specific_special_tokens", {{"image_token", "<img>"}}},
                       {"numbers", {"-WIDE", "WIDE.5", 1e30}},
                       {"padding_side", "left"},
                       {"sp_model_kwargs", json::object()},
                       {"tokenizer_class", "PreTrainedTokenizerFast"},
                       {"chat_template", "{{ messages[0].content }}"}};
  std::string published = config.dump();  // with the 10^30 that Transformers writes
  for (const char* number : {"WIDE", "-WIDE", "WIDE.5"})
    published = replace_all(published, fmt::format("\"{}\"", number),
                            replace_all(number, "WIDE", "1000000000000000019884624838656"));
  write(folder_ / "tokenizer_config.json", published);
  const auto tokenizer = make_tokenizer({.type = "HuggingFaceTokenizer", .model = folder_ / ""});
  EXPECT_EQ(tokenizer->special().bos, 1280);
  EXPECT_EQ(tokenizer->eod(), 1281);
  EXPECT_EQ(tokenizer->encode("<img>").size(), 1U) << "a model-specific special token";
  EXPECT_EQ(chat_template::read_template({.model = folder_ / "", .template_or_path = ""}).source(),
            "{{ messages[0].content }}");
  write(folder_ / "tokenizer_config.json", published.substr(0, published.find("padding_side")));
  EXPECT_THAT(test::message_of<DataError>(
                  [&] { (void)make_tokenizer({.type = "HuggingFaceTokenizer", .model = folder_ / ""}); }),
              HasSubstr("must be JSON"));
}

TEST_F(FolderTest, DocumentsGetTheSpecialIdsOfMegatron) {
  const json config = {{"eos_token", "<|end_of_text|>"}};
  const Ids text = read(config)->encode("some text");
  Ids with_bos = text;
  with_bos.insert(with_bos.begin(), 1280);
  EXPECT_EQ(read(config)->encode_document("some text"), with_bos) << "of the post-processor";
  EXPECT_EQ(read(config, false)->encode_document("some text"), text)
      << "--tokenizer-hf-no-include-special-tokens";
  const auto file = make_tokenizer({.type = "HuggingFaceTokenizer", .model = folder_ / "tokenizer.json"});
  EXPECT_EQ(file->encode_document("some text"), text) << "a single file";
  EXPECT_EQ(file->eod(), 1281);
}

TEST_F(FolderTest, PromptsHaveTheBosOfDocuments) {
  json config = {{"bos_token", "<|begin_of_text|>"}, {"eos_token", "<|end_of_text|>"}};
  const Ids text = read(config)->encode("some text");
  Ids with_bos = text;
  with_bos.insert(with_bos.begin(), 1280);
  EXPECT_EQ(encode_prompt(*read(config), "some text"), with_bos) << "as from AutoTokenizer";
  EXPECT_EQ(encode_prompt(*read(config), "<|begin_of_text|>some text"), with_bos) << "not twice";
  EXPECT_EQ(encode_prompt(*read(config, false), "some text"), text);
  EXPECT_EQ(encode_prompt(*read(config), ""), Ids{});
  config.update({{"tokenizer_class", "LlamaTokenizer"}, {"add_bos_token", true}, {"add_eos_token", true}});
  EXPECT_EQ(encode_prompt(*read(config), "some text"), with_bos) << "a prompt has no eos";
}

TEST_F(FolderTest, BosAndEosKeysReplaceThePostProcessorOfSomeClasses) {
  json config = {{"bos_token", "<|begin_of_text|>"},
                 {"eos_token", "<|end_of_text|>"},
                 {"add_bos_token", false},
                 {"add_eos_token", true}};
  Ids text = read(config)->encode("some text"), with_bos = text, with_eos = text;
  with_bos.insert(with_bos.begin(), 1280);
  with_eos.push_back(1281);
  for (const char* name : {"", "PreTrainedTokenizerFast", "Qwen2Tokenizer"}) {
    config["tokenizer_class"] = name;
    EXPECT_EQ(read(config)->encode_with_special("some text"), with_bos) << name;
  }
  for (const char* name : {"LlamaTokenizerFast", "LlamaTokenizer", "GemmaTokenizerFast"}) {
    config["tokenizer_class"] = name;
    EXPECT_EQ(read(config)->encode_with_special("some text"), with_eos) << name;
  }
  config.erase("eos_token");
  EXPECT_THAT(test::message_of<DataError>([&] { (void)read(config); }),
              HasSubstr("add_eos_token must have a eos_token"));
}

TEST_F(FolderTest, NamedTokensAreMatchedInTexts) {
  const auto plain = read(json::object());
  const auto end = static_cast<std::int32_t>(plain->vocab_size());
  ASSERT_EQ(plain->id_of("the"), -1);
  const auto named = read({{"eos_token", "the"},  // expected ids are those of AutoTokenizer
                           {"pad_token", {{"content", "<new>"}, {"rstrip", true}}},
                           {"additional_special_tokens", {"<more>"}},
                           {"extra_special_tokens", {{"image_token", "<image>"}}}});
  EXPECT_EQ(named->vocab_size(), end + 4);
  EXPECT_EQ(named->eod(), end);
  EXPECT_EQ(named->special().pad, end + 1);
  EXPECT_EQ(named->encode("xthe<image><new>  <more>"),
            (Ids{plain->encode("x")[0], end, end + 2, end + 1, end + 3}));
  const auto own = read({{"eos_token", "th"}});
  EXPECT_EQ(own->vocab_size(), end);
  EXPECT_EQ(plain->encode(" the").size(), 1U);
  EXPECT_EQ(own->encode(" the"), (Ids{plain->encode(" ")[0], plain->id_of("th"), plain->encode("e")[0]}));
  const auto listed = read({{"added_tokens_decoder", {{std::to_string(end), {{"content", "<new>"}}}}}});
  EXPECT_EQ(listed->encode("<new>"), Ids{end});
  EXPECT_THAT(test::message_of<DataError>([&] {
                (void)read({{"added_tokens_decoder", {{std::to_string(end + 7), {{"content", "<new>"}}}}}});
              }),
              HasSubstr("next id after its tokens"));
  EXPECT_THAT(test::message_of<DataError>([&] {
                (void)read({{"split_special_tokens", true}});
              }),
              HasSubstr("split_special_tokens"));
}

TEST_F(FolderTest, KeysOfTransformersClassesApply) {
  json file = json::parse(read_file(test::vector_path("tokenizers/gpt2_bpe.json")));
  write(folder_ / "tokenizer.json", file.dump());
  const json space = {{"tokenizer_class", "GPT2Tokenizer"}, {"add_prefix_space", true}};
  EXPECT_EQ(read(space)->encode("the"), read(json::object())->encode(" the"));
  EXPECT_NE(read(space)->encode("the"), read(json::object())->encode("the"));

  write(folder_ / "tokenizer.json", read_file(test::vector_path("tokenizers/bert_wordpiece.json")));
  const auto lower = read(json::object())->encode("Some été"),
             cased =
                 read({{"tokenizer_class", "BertTokenizer"}, {"do_lower_case", false}})->encode("some été");
  EXPECT_EQ(read({{"tokenizer_class", "BertTokenizerFast"}, {"do_lower_case", true}})->encode("Some été"),
            lower);
  EXPECT_NE(cased, read(json::object())->encode("some été")) << "accents are kept";

  write(folder_ / "tokenizer.json", read_file(test::vector_path("tokenizers/llama2_json.json")));
  EXPECT_NO_THROW((void)read({{"tokenizer_class", "LlamaTokenizerFast"}, {"add_prefix_space", true}}));
  EXPECT_THAT(test::message_of<DataError>([&] {
                (void)read({{"tokenizer_class", "LlamaTokenizerFast"}, {"add_prefix_space", false}});
              }),
              HasSubstr("LlamaTokenizer would rebuild the pipeline from it"));
}

/// The expected ids are those of AutoTokenizer.
TEST_F(FolderTest, ModelSpecificTokensAreMatchedInTexts) {
  const auto end = static_cast<std::int32_t>(read(json::object())->vocab_size());
  const auto ids_of = [&](const json& config, const char* text) { return read(config)->encode(text); };
  const json image = {{"image_token", "<i>"}, {"pad_token", "<p>"}, {"video_token", "<v>"}};
  EXPECT_EQ(ids_of(image, "<p><i><v>"), (Ids{end, end + 1, end + 2}));
  json table = {{"video_token", {{"content", "<v>"}}}, {"image_token", "<i>"}};
  EXPECT_EQ(ids_of(table, "<i>"), Ids{end});
  EXPECT_GT(ids_of(table, "<v>").size(), 1U) << "an object without __type AddedToken";
  table["video_token"]["__type"] = "AddedToken";
  EXPECT_EQ(ids_of(table, "<v><i>"), (Ids{end, end + 1})) << "objects come first";
  table["extra_special_tokens"] = {{"more", "<m>"}};
  EXPECT_EQ(ids_of(table, "<v><i><m>"), (Ids{end, end + 1, end + 2}));
  const json dropped = {{"image_token", "<i>"}, {"model_specific_special_tokens", {{"more", "<m>"}}}};
  EXPECT_GT(ids_of(dropped, "<m>").size(), 1U);
  EXPECT_EQ(ids_of({{"image_token", nullptr}, {"add_bos_token", true}, {"video_token", ""}}, "<i>").size(),
            3U);
  write(folder_ / "special_tokens_map.json", R"({"image_token": "<i>"})");
  EXPECT_GT(ids_of({{"added_tokens_decoder", json::object()}}, "<i>").size(), 1U);
  EXPECT_THAT(test::message_of<DataError>([&] { (void)read(json::object()); }),
              HasSubstr("image_token must be a token of tokenizer.json"));
}

TEST_F(FolderTest, SpecialTokensMapTakesPrecedenceUnlessAddedTokensAreListed) {
  write(folder_ / "tokenizer.json", read_file(test::vector_path("tokenizers/llama3_bpe.json")));
  write(folder_ / "special_tokens_map.json", R"({"eos_token": "day", "pad_token": "th"})");
  json config = {{"eos_token", "is"}, {"bos_token", "on"}};
  const auto id_of = [](const auto& tokenizer, const char* text) { return tokenizer->encode(text).at(0); };
  const auto both = read(config);
  EXPECT_EQ(both->special().eos, id_of(both, "day"));
  EXPECT_EQ(both->special().bos, id_of(both, "on"));
  EXPECT_EQ(both->special().pad, id_of(both, "th"));
  config["added_tokens_decoder"] = json::object();
  const auto listed = read(config);
  EXPECT_EQ(listed->special().eos, id_of(listed, "is"));
  EXPECT_EQ(listed->special().pad, -1) << "the map is not read";
}

TEST_F(FolderTest, CleansUpTokenizationSpacesAsTransformers) {
  const std::string spaced = "don't do not say 'x' . we 've , they 're !";
  json config = {{"clean_up_tokenization_spaces", true}};
  const auto decoded = [&](const char* file) {
    write(folder_ / "tokenizer.json", read_file(test::vector_path(fmt::format("tokenizers/{}.json", file))));
    const auto tokenizer = read(config);
    return tokenizer->decode(tokenizer->encode(spaced));
  };
  EXPECT_EQ(decoded("bert_wordpiece"), "don't do not say'x '. we've, they're!");
  EXPECT_EQ(decoded("t5_unigram"), "don't do not say 'x'. we've, they're!");
  EXPECT_EQ(decoded("gpt2_bpe"), spaced) << "BPE";
  config["clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"] = true;
  EXPECT_EQ(decoded("gpt2_bpe"), "don't do not say 'x'. we've, they're!");
  config.erase("clean_up_tokenization_spaces");
  EXPECT_EQ(decoded("bert_wordpiece"), "don ' t do not say ' x '. we ' ve, they ' re!");
  write(folder_ / "special_tokens_map.json", R"({"clean_up_tokenization_spaces": true})");
  EXPECT_EQ(decoded("t5_unigram"), spaced) << "a key of tokenizer_config.json only";
}

TEST_F(FolderTest, FindsTheFileThatDeterminesTheIds) {
  EXPECT_EQ(tokenizer_file(folder_ / ""), folder_ / "tokenizer.json");
  EXPECT_EQ(tokenizer_file("/some/file"), "/some/file");
  const test::TempFolder empty;
  EXPECT_THROW((void)tokenizer_file(empty / ""), DataError);
}

}  // namespace
}  // namespace colonnade::tokenizers
