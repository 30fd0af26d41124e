// Fill-in-the-middle against Megatron's, its effect on samples, and missing tokens.
#include "colonnade/data/samples/gpt/fill_in_the_middle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "colonnade/data/samples/gpt/gpt_batches.h"
#include "support/files.h"

namespace colonnade::data {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<std::int64_t>;

/// A tokenizer loaded from a folder, so that texts get the special tokens that its file adds around them.
std::shared_ptr<const tokenizers::Tokenizer> tokenizer_named(const std::string& name) {
  const test::TempFolder folder;
  std::filesystem::copy_file(test::vector_path("tokenizers/" + name + ".json"), folder / "tokenizer.json");
  return tokenizers::make_tokenizer(
      {.type = "HuggingFaceTokenizer",
       .model = std::filesystem::path(folder / "tokenizer.json").parent_path().string()});
}

config::FillInTheMiddle settings_of(const nlohmann::json& about) {
  const auto word = [&about](const char* key) {
    return about[key].is_null() ? std::string() : about[key].get<std::string>();
  };
  config::FillInTheMiddle settings{.enabled = true,
                                   .rate = about["fim_rate"],
                                   .spm_rate = about["fim_spm_rate"],
                                   .split_sample = word("fim_split_sample"),
                                   .no_prefix = word("fim_no_prefix"),
                                   .prefix_token = about["tokens"][0],
                                   .middle_token = about["tokens"][1],
                                   .suffix_token = about["tokens"][2],
                                   .pad_token = about["tokens"][3],
                                   .eod_token = about["tokens"][4]};
  if (!about["fim_fragment_rate"].is_null()) settings.fragment_rate = about["fim_fragment_rate"];
  return settings;
}

/// Tokens from the middle of sequence `first` to the middle of sequence `last`, plus the extra token of
/// samples.
Ints sample_of(const IndexedDataset& source, std::int64_t first, std::int64_t last) {
  Ints sample;
  for (std::int64_t i = first; i <= last; ++i) {
    const std::int64_t begin = i == first ? source.length(i) / 2 : 0;
    const std::int64_t end = i == last ? source.length(i) / 2 + 1 : source.length(i);
    Ints part(static_cast<std::size_t>(end - begin));
    source.tokens(i, begin, part);
    sample.insert(sample.end(), part.begin(), part.end());
  }
  return sample;
}

TEST(FillInTheMiddle, MatchesMegatrons) {
  const auto manifest = nlohmann::json::parse(read_file(test::vector_path("fim/manifest.json")));
  for (const auto& [name, about] : manifest["cases"].items()) {
    SCOPED_TRACE(name);
    const auto tokenizer = tokenizer_named(about["tokenizer"]);
    const FimRules rules = fim_rules(settings_of(about), *tokenizer);
    const IndexedDataset source(test::vector_path("indexed/" + about["data"].get<std::string>()));
    const auto expected = test::read_tensors("fim/" + name + ".safetensors").at("text");
    RandomState random(about["seed"]);
    std::size_t at = 0, changed = 0;
    const std::int64_t joined = manifest["joined"];
    for (std::size_t i = 0; i < about["lengths"].size(); ++i) {
      const auto first = joined * static_cast<std::int64_t>(i);
      const Ints sample = sample_of(source, first, first + joined);
      ASSERT_EQ(sample.size(), about["lengths"][i].get<std::size_t>());
      const Ints got = fill_in_the_middle(sample, rules, *tokenizer, random);
      ASSERT_EQ(got.size(), sample.size());
      ASSERT_TRUE(std::equal(got.begin(), got.end(), expected.begin() + static_cast<std::ptrdiff_t>(at)))
          << "sample " << i;
      at += got.size();
      changed += got == sample ? 0 : 1;
    }
    EXPECT_EQ(at, expected.size());
    EXPECT_GT(changed, 20U);
  }
}

/// Identical samples.
class Same final : public SampleSource {
 public:
  explicit Same(Ints text) : text_(std::move(text)) {}
  [[nodiscard]] std::int64_t size() const override { return 100; }
  void tokens(std::int64_t, std::int64_t pad, std::span<std::int64_t> out) const override {
    std::ranges::fill(out, pad);
    std::ranges::copy(text_, out.begin());
  }
  [[nodiscard]] std::string name() const override { return "same"; }
  [[nodiscard]] std::vector<SampleOrder> orders() const override { return {{.name = "same"}}; }
  [[nodiscard]] std::vector<SampleSpan> spans(std::int64_t number) const override {
    return {{.sequence = number, .length = std::ssize(text_)}};
  }
  void read(const SampleSpan&, std::span<std::int64_t> out) const override {
    std::ranges::copy(text_, out.begin());
  }
  void for_each_source(const SourceVisitor&) const override {}

 private:
  Ints text_;
};

TEST(FillInTheMiddle, DependsOnlyOnTheSampleNumber) {
  const auto tokenizer = tokenizer_named("gpt2_bpe");
  const FimRules rules{.rate = 1, .prefix = 27, .middle = 29, .suffix = 61, .pad = 93, .eod = 1024};
  Ints text;
  for (const std::int32_t id : tokenizer->encode("It is told in three parts, of which one is last."))
    text.push_back(id);
  const FimDataset dataset(std::make_shared<Same>(text), rules, tokenizer, 4294967295U);
  const FimDataset next(std::make_shared<Same>(text), rules, tokenizer, 0);
  const auto sample = [&text](const FimDataset& of, std::int64_t number) {
    Ints out(text.size() + 5);
    of.tokens(number, -7, out);
    return out;
  };
  const Ints third = sample(dataset, 3);
  EXPECT_NE(sample(dataset, 4), third);
  EXPECT_EQ(sample(dataset, 3), third);
  EXPECT_EQ(sample(next, 2), third);  // the seed and the number are added, modulo 2^32
  EXPECT_EQ(third.front(), 27);
  EXPECT_TRUE(std::all_of(third.end() - 5, third.end(), [](auto id) { return id == -7; }));
  EXPECT_EQ(std::ranges::count(third, -7), 5);
  EXPECT_EQ(dataset.size(), 100);
  EXPECT_EQ(dataset.name(), "same");
  const std::vector<SampleSpan> pieces = dataset.spans(3);
  ASSERT_EQ(pieces.size(), 1U);
  EXPECT_EQ(pieces[0].sequence, 3);
  Ints read(text.size());
  dataset.read(pieces[0], read);
  EXPECT_EQ(read, text);  // unchanged
}

TEST(FillInTheMiddle, FollowsTheSettings) {
  const test::TempFolder folder;
  log::set_level(log::Level::kError);
  config::Data data;
  data.data_path = {test::vector_path("indexed/gpt2_uint16")};
  data.data_cache_path = folder / "cache";
  data.split = "1";
  config::Training training;
  training.seq_length = 64;
  training.global_batch_size = 4;
  training.train_iters = 5;
  const auto tokenizer = tokenizer_named("gpt2_bpe");
  const TokenIds ids{.vocab_size = 1025, .eod = 1024, .tokenizer = tokenizer};
  const HostBatch plain = open_gpt_batches(data, training, ids)[0]->get(0, 16);
  data.fim = {.enabled = true,
              .rate = 1,
              .prefix_token = "<",
              .middle_token = ">",
              .suffix_token = "^",
              .pad_token = "~"};
  const HostBatch transformed = open_gpt_batches(data, training, ids)[0]->get(0, 16);
  EXPECT_NE(transformed.tokens, plain.tokens);
  EXPECT_GT(std::ranges::count(transformed.tokens, tokenizer->id_of("^")), 16);
  const HostBatch alone = open_gpt_batches(data, training, ids)[0]->get(9, 1);
  EXPECT_TRUE(std::equal(alone.tokens.begin(), alone.tokens.end(), transformed.tokens.begin() + 9 * 64));
  const auto error_message = [&](const TokenIds& given) {
    return test::message_of<ConfigError>([&] { (void)open_gpt_batches(data, training, given); });
  };
  EXPECT_THAT(error_message({.vocab_size = 1025}),
              HasSubstr("--fim-data requires the text of data files; got no tok"));
  data.fim.pad_token = "<nothing>";
  data.fim.split_sample = "<none>";
  EXPECT_THAT(error_message(ids),
              HasSubstr("without --fim-pad-token '<nothing>', --fim-split-sample '<none>'; name"));
  data.data_path.clear();
  data.mock_data = true;
  EXPECT_THAT(error_message(ids), HasSubstr("got --mock-data"));
  log::set_level(log::Level::kInfo);
}

// Megatron joins tokens with convert_tokens_to_string, without the clean-up of Transformers' decode.
TEST(FillInTheMiddle, KeepsSpacesThatDecodingCleansUp) {
  const FimRules rules{.rate = 1, .prefix = 27, .middle = 29, .suffix = 61, .pad = 93, .eod = 2};
  for (const std::string name : {"t5_unigram", "bert_wordpiece"}) {
    const test::TempFolder folder;
    std::filesystem::copy_file(test::vector_path("tokenizers/" + name + ".json"), folder / "tokenizer.json");
    const auto open = [&](bool cleans) {
      std::ofstream(folder / "tokenizer_config.json")
          << nlohmann::json{{"clean_up_tokenization_spaces", cleans}}.dump();
      return tokenizers::make_tokenizer(
          {.type = "HuggingFaceTokenizer",
           .model = std::filesystem::path(folder / "tokenizer.json").parent_path().string()});
    };
    const auto plain = open(false), cleaning = open(true);
    Ints text;
    for (const std::int32_t id : plain->encode("we 've , they 're ! it is told in three parts ."))
      text.push_back(id);
    const std::vector<std::int32_t> ids(text.begin(), text.end());
    ASSERT_NE(cleaning->decode(ids), plain->decode(ids)) << name;
    text.resize(text.size() + 20, 5);
    for (std::uint32_t seed = 0; seed < 9; ++seed) {
      RandomState one(seed), other(seed);
      EXPECT_EQ(fill_in_the_middle(text, rules, *cleaning, one),
                fill_in_the_middle(text, rules, *plain, other))
          << name << ", seed " << seed;
    }
  }
}

TEST(FillInTheMiddle, RejectsIdsOutsideTheVocabulary) {
  const auto tokenizer = tokenizer_named("gpt2_bpe");
  const FimRules rules{.rate = 1, .prefix = 27, .middle = 29, .suffix = 61, .pad = 93, .eod = 1024};
  RandomState random(1);
  EXPECT_THROW((void)fill_in_the_middle(Ints{5, 100000}, rules, *tokenizer, random), DataError);
  EXPECT_EQ(fill_in_the_middle({}, rules, *tokenizer, random).size(), 0U);
}

}  // namespace
}  // namespace colonnade::data
