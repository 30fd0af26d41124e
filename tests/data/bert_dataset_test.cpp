// BERT samples against Megatron's, and invalid data.
#include "colonnade/data/samples/bert/bert_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "colonnade/data/samples/bert/bert_batches.h"
#include "data/sentences.h"

namespace colonnade::data {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<std::int64_t>;

/// The plan for the `config` of a manifest of the vectors.
BertPlan plan_of(const nlohmann::json& config, std::int64_t num_samples, const TokenSource& source) {
  const bool pairs = config["classification_head"];
  const std::int64_t length = config["sequence_length"];
  return {.length = length,
          .sentence_order = pairs,
          .sentences = {.documents = range_of(*parse_split("90,10,0")[0], source.num_documents()),
                        .max_length = length - 3,
                        .num_samples = num_samples,
                        .short_seq_prob = config["short_sequence_probability"],
                        .seed = config["random_seed"],
                        .min_sentences = pairs ? 2 : 1},
          .masking = {.probability = config["masking_probability"],
                      .max_words = config["masking_max_ngram"],
                      .geometric = config["masking_use_geometric_distribution"],
                      .favors_longer = config["masking_use_longer_ngrams"],
                      .whole_words = config["masking_do_full_word"],
                      .cls = 2,
                      .sep = 3,
                      .continues_word = word_pieces()},
          .permute = config["masking_do_permutation"],
          .ids = {.vocab_size = 2000, .words = 2000, .cls = 2, .sep = 3, .mask = 4, .pad = 0}};
}

/// Compares the first samples of the data set, and its batches, with those of the file.
void expect_samples(const BertPlan& plan, const std::shared_ptr<const BertDataset>& dataset,
                    const std::string& file, std::size_t samples) {
  const auto expected = test::read_tensors(file);
  const auto length = static_cast<std::size_t>(plan.length);
  const BertBatches batches(
      dataset,
      {.length = plan.length, .sentence_order = plan.sentence_order, .pad = 0, .text = {2000, 2000}});
  const HostBatch batch = batches.get(0, static_cast<std::int64_t>(samples));
  EXPECT_EQ(batch.seq, plan.length);
  ASSERT_EQ(expected.at("text").size(), samples * length);
  for (std::size_t i = 0; i < samples * length; ++i) {
    ASSERT_EQ(static_cast<double>(batch.tokens[i]), expected.at("text")[i]) << i / length;
    ASSERT_EQ(static_cast<double>(batch.token_types[i]), expected.at("types")[i]) << i / length;
    ASSERT_EQ(batch.padding[i], 1 - expected.at("padding_mask")[i]) << i / length;
    ASSERT_EQ(batch.loss_mask[i], expected.at("loss_mask")[i]) << i / length;
    // Megatron's -1, which is in no vocabulary, is 0 here.
    ASSERT_EQ(static_cast<double>(batch.labels[i]), std::max(expected.at("labels")[i], 0.0)) << i / length;
  }
  ASSERT_EQ(batch.swapped.size(), plan.sentence_order ? samples : 0);
  for (std::size_t i = 0; i < samples; ++i) {
    if (plan.sentence_order) {
      EXPECT_EQ(static_cast<double>(batch.swapped[i]), expected.at("is_random")[i]) << i;
    }
    EXPECT_EQ(dataset->text(static_cast<std::int64_t>(i)).truncated ? 1 : 0, expected.at("truncated")[i])
        << i;
  }
}

/// Path of the sample index in `folder`.
std::filesystem::path sample_index_in(const std::filesystem::path& folder) {
  for (const auto& file : std::filesystem::directory_iterator(folder))
    if (file.path().string().ends_with("-sample_index.npy")) return file.path();
  return {};
}

TEST(BertDataset, MatchesMegatronsSamples) {
  const auto source = std::make_shared<IndexedDataset>(test::vector_path("indexed/bert_uint16"));
  const auto manifest =
      nlohmann::json::parse(read_file(test::vector_path("indexed/manifest.json")))["masked"];
  for (const char* name : {"bert_nsp", "bert_mlm", "bert_span"}) {
    SCOPED_TRACE(name);
    const test::TempFolder folder;
    log::set_level(log::Level::kError);
    const BertPlan plan = plan_of(manifest[name]["config"], 400, *source);
    const auto dataset =
        std::make_shared<BertDataset>(source, plan, IndexCache(folder / "cache"), CacheKey{.kind = "k"});
    log::set_level(log::Level::kInfo);
    EXPECT_EQ(dataset->size(), manifest[name]["len"].get<std::int64_t>());
    EXPECT_EQ(read_file(sample_index_in(folder / "cache")),
              read_file(test::vector_path(std::string("indexed/masked/") + name + ".sample_index.npy")));
    expect_samples(plan, dataset, std::string("indexed/masked/") + name + ".first.safetensors", 50);
  }
}

TEST(BertDataset, MatchesMegatronsSamplesForAllMaskRules) {
  const auto source = std::make_shared<IndexedDataset>(test::vector_path("indexed/bert_uint16"));
  const auto manifest = nlohmann::json::parse(read_file(test::vector_path("masked/manifest.json")));
  for (const auto& [name, about] : manifest["cases"].items()) {
    SCOPED_TRACE(name);
    BertPlan plan = plan_of(about["config"], about["num_samples"], *source);
    plan.sentences.documents = {0, about["documents"]};
    const auto dataset = std::make_shared<BertDataset>(source, plan, IndexCache({}), CacheKey{});
    EXPECT_EQ(dataset->size(), about["len"].get<std::int64_t>());
    expect_samples(plan, dataset, "masked/" + name + ".safetensors", manifest["samples"]);
  }
}

BertDataset small(const std::vector<Ints>& documents, const std::function<void(BertPlan&)>& change = {}) {
  const auto source = std::make_shared<Sentences>(documents);
  BertPlan plan{.length = 64,
                .sentence_order = true,
                .sentences = {.documents = {0, source->num_documents()},
                              .max_length = 61,
                              .short_seq_prob = 0,
                              .min_sentences = 2},
                .masking = {.cls = 2, .sep = 3},
                .ids = {.words = 1000, .cls = 2, .sep = 3, .mask = 4}};
  if (change) change(plan);
  return {source, plan, IndexCache({}), CacheKey{}};
}

TEST(BertDataset, KeepsOrSwapsTheSegments) {
  const BertDataset dataset = small(std::vector<Ints>(200, Ints{5, 4, 3}));
  std::int64_t swapped = 0;
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    const BertDataset::Text text = dataset.text(i);
    ASSERT_EQ(text.tokens.size(), 15U);
    EXPECT_EQ(text.tokens.front(), 2);
    EXPECT_EQ(text.tokens[static_cast<std::size_t>(text.first) - 1], 3);
    EXPECT_EQ(text.tokens.back(), 3);
    EXPECT_EQ(text.tokens[1] > text.tokens[static_cast<std::size_t>(text.first)], text.swapped);
    EXPECT_FALSE(text.truncated);
    swapped += text.swapped ? 1 : 0;
  }
  EXPECT_GT(swapped, 70);
  EXPECT_LT(swapped, 130);
}

TEST(BertDataset, TruncatesTheLongerSegmentAtBothEnds) {
  const BertDataset dataset = small({{100, 100}, {2, 500}});
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    const BertDataset::Text text = dataset.text(i);
    EXPECT_EQ(text.tokens.size(), 64U);
    EXPECT_TRUE(text.truncated);
    const std::int64_t first = dataset.index().sample[3 * i];
    if (first == 2) {
      EXPECT_EQ(text.swapped ? std::ssize(text.tokens) - text.first : text.first, text.swapped ? 3 : 4);
    } else {
      EXPECT_NEAR(static_cast<double>(text.first), 32, 1);
    }
  }
  // A single sentence of any length; its remaining tokens are contiguous.
  const BertDataset one = small({{1000000}, {1, 0, 70}}, [](BertPlan& plan) {
    plan.sentence_order = false;
    plan.sentences.min_sentences = 1;
  });
  for (std::int64_t i = 0; i < one.size(); ++i) {
    const BertDataset::Text text = one.text(i);
    EXPECT_EQ(text.first, 63);
    EXPECT_EQ(text.tokens.size(), 63U);
    for (std::size_t at = 2; at < 62; ++at) EXPECT_EQ(text.tokens[at], text.tokens[at - 1] + 1);
  }
}

TEST(BertDataset, RejectsAnIndexOfOtherData) {
  log::set_level(log::Level::kError);
  const test::TempFolder folder;
  const auto many = std::make_shared<Sentences>(std::vector<Ints>(300, Ints{4, 4}));
  const auto few = std::make_shared<Sentences>(std::vector<Ints>(10, Ints{4, 4}));
  const BertPlan plan{.length = 64,
                      .sentence_order = true,
                      .sentences = {.documents = {0, 10}, .max_length = 61, .min_sentences = 2},
                      .ids = {.words = 1000, .cls = 2, .sep = 3, .mask = 4}};
  BertPlan all = plan;
  all.sentences.documents = {290, 300};
  const IndexCache cache(folder / "cache");
  const BertDataset made(many, all, cache, {.kind = "k", .description = "many"});
  const auto of_many = sample_index_in(folder / "cache");
  const BertDataset other(few, plan, cache, {.kind = "k", .description = "few"});
  for (const auto& file : std::filesystem::directory_iterator(folder / "cache"))
    if (file.path() != of_many && file.path().string().ends_with("-sample_index.npy"))
      std::filesystem::copy(of_many, file.path(), std::filesystem::copy_options::overwrite_existing);
  const BertDataset wrong(few, plan, cache, {.kind = "k", .description = "few"});
  EXPECT_THAT(test::message_of<DataError>([&] { (void)wrong.text(0); }), HasSubstr("delete the cache"));
  EXPECT_THAT(test::message_of<DataError>([&] { (void)made.text(made.size()); }),
              HasSubstr("sample numbers must be 0 to"));
  log::set_level(log::Level::kInfo);
}

}  // namespace
}  // namespace colonnade::data
