// Sample descriptions: BERT's and T5's against Megatron's samples of the same data, FIM parts against the
// text.
#include "colonnade/data/sample_description.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "colonnade/data/samples/bert/bert_batches.h"
#include "colonnade/data/samples/gpt/gpt_batches.h"
#include "colonnade/data/samples/t5/t5_batches.h"
#include "colonnade/data/samples/t5/t5_dataset.h"
#include "data/sentences.h"

namespace colonnade::data {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<std::int64_t>;
using Json = nlohmann::ordered_json;
constexpr std::int64_t kAll = 1000;

config::Run run_of(const std::string& family) {
  config::Run run;
  run.model_type = family;
  run.data.data_path = {test::vector_path("indexed/bert_uint16")};
  run.data.split = "90,10,0";
  run.training.global_batch_size = 8;
  run.training.train_iters = 50;
  run.training.eval_iters = 5;
  return run;
}

/// Row `row` of a tensor with `width` columns.
Ints row_of(const std::vector<double>& tensor, std::size_t row, std::size_t width) {
  const auto begin = tensor.begin() + static_cast<std::ptrdiff_t>(row * width);
  return {begin, begin + static_cast<std::ptrdiff_t>(width)};
}

Ints joined(const Json& spans) {
  Ints all;
  for (const Json& span : spans)
    for (const Json& token : span.at("tokens")) all.push_back(token);
  return all;
}

class SampleDescriberTest : public ::testing::Test {
 protected:
  SampleDescriberTest() { log::set_level(log::Level::kError); }
  ~SampleDescriberTest() override { log::set_level(log::Level::kInfo); }
  test::TempFolder folder_;
};

TEST_F(SampleDescriberTest, BertSegmentsAndMaskedTokensMatchMegatrons) {
  config::Run run = run_of("bert");
  run.data.data_cache_path = folder_ / "cache";
  run.model.bidirectional = run.model.bert_binary_head = true;
  run.training.seq_length = 96;
  run.training.seed = 11;
  const BertIds ids{.vocab_size = 2000,
                    .words = 2000,
                    .cls = 2,
                    .sep = 3,
                    .mask = 4,
                    .pad = 0,
                    .continues_word = word_pieces()};
  const auto tokenizer = tokenizers::make_tokenizer(
      {.type = "HuggingFaceTokenizer", .model = test::vector_path("tokenizers/bert_wordpiece.json")});
  const Splits splits = open_bert_batches(run.data, run.training, ids, true);
  const auto expected = test::read_tensors("indexed/masked/bert_nsp.first.safetensors");
  for (std::size_t i = 0; i < 50; ++i) {
    Json about;
    SampleDescriber(run, tokenizer.get(), kAll).add(*splits[0], static_cast<std::int64_t>(i), about);
    Ints tokens = joined(Json::array({about.at("first"), about.at("second")}));
    Ints types(tokens.size(), 1), loss(96), labels(96, -1);
    std::fill_n(types.begin(), about.at("first").at("length").get<std::ptrdiff_t>(), 0);
    for (const Json& masked : about.at("hidden")) {
      const auto at = masked.at("at").get<std::size_t>();
      loss[at] = 1;
      labels[at] = masked.at("token");
      EXPECT_EQ(masked.at("shown"), tokens[at]);
      EXPECT_FALSE(masked.at("text").get<std::string>().empty());
    }
    tokens.resize(96, 0);
    types.resize(96, 0);
    EXPECT_EQ(tokens, row_of(expected.at("text"), i, 96)) << i;
    EXPECT_EQ(types, row_of(expected.at("types"), i, 96)) << i;
    EXPECT_EQ(loss, row_of(expected.at("loss_mask"), i, 96)) << i;
    EXPECT_EQ(labels, row_of(expected.at("labels"), i, 96)) << i;
    EXPECT_EQ(about.at("swapped"), expected.at("is_random")[i] == 1) << i;
    EXPECT_THAT(description_text(about), HasSubstr("  masked at "));
    EXPECT_THAT(about.at("first").at("text").get<std::string>(), HasSubstr("[CLS]"));
  }
}

TEST_F(SampleDescriberTest, T5MaskedSpansComplementMegatronsEncoderInput) {
  config::Run run = run_of("t5");
  run.model.encoder_num_layers = 1;
  run.model.vocab_size = 2100;  // sentinels from 2000 on
  run.data.vocab_extra_ids = 100;
  const auto source = std::make_shared<IndexedDataset>(run.data.data_path[0]);
  const T5Batches batches(
      std::make_shared<T5Dataset>(source, megatrons_t5_plan(*source), IndexCache({}), CacheKey{}),
      {.encoder_length = 128, .decoder_length = 64, .pad = 0, .text = {2102, 2102}});
  const auto expected = test::read_tensors("indexed/masked/t5_span.first.safetensors");
  for (std::size_t i = 0; i < 50; ++i) {
    Json about;
    SampleDescriber(run, nullptr, kAll).add(batches, static_cast<std::int64_t>(i), about);
    Ints encoder = joined(Json::array({about.at("encoder")})),
         decoder = joined(Json::array({about.at("decoder")}));
    Ints restored;
    std::size_t i_span = 0;
    for (const std::int64_t token : encoder) {
      if (token < 2000) {
        restored.push_back(token);
        continue;
      }
      const Json& masked = about.at("gaps").at(i_span++);
      EXPECT_EQ(masked.at("sentinel"), token);
      for (const Json& id : masked.at("tokens")) restored.push_back(id);
    }
    EXPECT_EQ(i_span, about.at("gaps").size());
    EXPECT_EQ(restored, joined(about.at("pieces"))) << i;
    encoder.resize(128, 0);
    decoder.resize(64, 0);
    EXPECT_EQ(encoder, row_of(expected.at("text_enc"), i, 128)) << i;
    EXPECT_EQ(decoder, row_of(expected.at("text_dec"), i, 64)) << i;
    EXPECT_FALSE(about.at("encoder").contains("text"));
  }
}

TEST_F(SampleDescriberTest, FimPartsRestoreTheText) {
  config::Run run = run_of("gpt");
  run.data.data_path = {test::vector_path("indexed/gpt2_uint16")};
  run.data.data_cache_path = folder_ / "cache";
  run.data.fim = {.enabled = true,
                  .rate = 1,
                  .spm_rate = 0.5,
                  .prefix_token = "<",
                  .middle_token = ">",
                  .suffix_token = "^",
                  .pad_token = "~"};
  run.training.seq_length = 128;
  const std::shared_ptr<const tokenizers::Tokenizer> tokenizer = tokenizers::make_tokenizer(
      {.type = "HuggingFaceTokenizer", .model = test::vector_path("tokenizers/gpt2_bpe.json")});
  const Splits splits =
      open_gpt_batches(run.data, run.training, {.eod = tokenizer->eod(), .tokenizer = tokenizer});
  // With a pad token, which the model reads as 0, the description shows the original id.
  const std::int64_t pad = splits[0]->get(0, 1).tokens[5];
  const Splits padded =
      open_gpt_batches(run.data, run.training, {.eod = tokenizer->eod(), .pad = pad, .tokenizer = tokenizer});
  int pads = 0;
  Ints fim_ids;
  for (const char* token : {"<", ">", "^", "~"}) fim_ids.push_back(tokenizer->id_of(token));
  int documents = 0, suffixes_first = 0;
  for (std::int64_t i = 0; i < 50; ++i) {
    Json about;
    SampleDescriber(run, tokenizer.get(), kAll).add(*splits[0], i, about);
    Json with_pads;
    SampleDescriber(run, tokenizer.get(), kAll).add(*padded[0], i, with_pads);
    EXPECT_EQ(with_pads, about);
    pads += static_cast<int>(std::ranges::count(joined(about.at("written")), pad));
    std::string text;
    for (const Json& piece : about.at("pieces")) text += piece.at("text").get<std::string>();
    const Json& written = about.at("written");
    const Ints tokens = joined(about.at("pieces"));
    if (std::ranges::any_of(tokens, [&](std::int64_t id) { return std::ranges::count(fim_ids, id) > 0; }))
      continue;
    for (std::size_t p = 0; p + 3 < written.size(); ++p) {  // the last document may be truncated
      if (written[p].at("part") != "prefix") continue;
      ASSERT_EQ(written[p + 1].at("part"), "suffix");
      ASSERT_EQ(written[p + 2].at("part"), "middle");
      EXPECT_THAT(text, HasSubstr(written[p].at("text").get<std::string>() +
                                  written[p + 2].at("text").get<std::string>() +
                                  written[p + 1].at("text").get<std::string>()));
      ++documents;
      suffixes_first += written[p].at("length") == 0 ? 1 : 0;
    }
  }
  EXPECT_GT(documents, 10);
  EXPECT_GT(pads, 0);
  EXPECT_GT(suffixes_first, 0);
  EXPECT_LT(suffixes_first, documents);
}

TEST_F(SampleDescriberTest, GptSamplesAreTheirSpans) {
  config::Run run = run_of("gpt");
  run.data.data_cache_path = folder_ / "cache";
  run.training.seq_length = 64;
  const Splits splits = open_gpt_batches(run.data, run.training, {});
  Json about;
  SampleDescriber(run, nullptr, kAll).add(*splits[0], 3, about);
  EXPECT_EQ(about.size(), 1U);
  Ints tokens = joined(about.at("pieces"));
  tokens.pop_back();
  EXPECT_EQ(tokens, splits[0]->get(3, 1).tokens);
  Json first;
  SampleDescriber(run, nullptr, 2).add(*splits[0], 3, first);
  ASSERT_EQ(first.at("pieces").size(), about.at("pieces").size());
  for (std::size_t i = 0; i < first.at("pieces").size(); ++i) {
    const Json& piece = first.at("pieces").at(i);
    EXPECT_EQ(piece.at("length"), about.at("pieces").at(i).at("length"));
    EXPECT_EQ(piece.at("tokens").size(), std::min<std::size_t>(2, piece.at("length").get<std::size_t>()));
  }
}

}  // namespace
}  // namespace colonnade::data
