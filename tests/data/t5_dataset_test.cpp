// T5 samples against Megatron's, and invalid data.
#include "colonnade/data/samples/t5/t5_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "colonnade/data/samples/t5/t5_batches.h"
#include "data/sentences.h"

namespace colonnade::data {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<std::int64_t>;

T5Dataset small(const std::vector<Ints>& documents, const std::function<void(T5Plan&)>& change = {}) {
  const auto source = std::make_shared<Sentences>(documents);
  T5Plan plan = megatrons_t5_plan(*source);
  plan.sentences.documents = {0, source->num_documents()};
  plan.sentences.num_samples.reset();
  if (change) change(plan);
  return {source, plan, IndexCache({}), CacheKey{}};
}

/// Compares `got` with one row of a tensor.
void expect_row(std::span<const std::int64_t> got, const std::vector<double>& tensor, std::size_t row,
                const char* what) {
  const auto begin = tensor.begin() + static_cast<std::ptrdiff_t>(row * got.size());
  EXPECT_TRUE(std::equal(got.begin(), got.end(), begin)) << what << " of sample " << row;
}

TEST(T5Dataset, MatchesMegatronsSamples) {
  const auto source = std::make_shared<IndexedDataset>(test::vector_path("indexed/bert_uint16"));
  const auto dataset =
      std::make_shared<T5Dataset>(source, megatrons_t5_plan(*source), IndexCache({}), CacheKey{});
  ASSERT_EQ(dataset->size(), 486);
  const auto expected = test::read_tensors("indexed/masked/t5_span.first.safetensors");
  for (std::size_t i = 0; i < 50; ++i) {
    Ints numbers(128 + 64 + 64);
    const auto sample = static_cast<std::int64_t>(i);
    dataset->tokens(sample, 0, numbers);
    const std::span<const std::int64_t> all(numbers);
    expect_row(all.first(128), expected.at("text_enc"), i, "text_enc");
    expect_row(all.subspan(128, 64), expected.at("text_dec"), i, "text_dec");
    expect_row(all.last(64), expected.at("labels"), i, "labels");
    expect_row(Ints{dataset->text(sample).truncated ? 1 : 0}, expected.at("truncated"), i, "truncated");
    Ints decoder_mask;
    for (const std::int64_t token : all.subspan(128, 64)) decoder_mask.push_back(token == 0 ? 0 : 1);
    expect_row(decoder_mask, expected.at("dec_mask"), i, "dec_mask");
  }
  const T5Batches batches(dataset,
                          {.encoder_length = 128, .decoder_length = 64, .pad = 0, .text = {2102, 2102}});
  const HostBatch batch = batches.get(0, 50);
  for (std::size_t i = 0; i < 50 * 128; ++i) {
    EXPECT_EQ(static_cast<double>(batch.encoder_tokens[i]), expected.at("text_enc")[i]);
    EXPECT_EQ(batch.encoder_padding[i], 1 - expected.at("enc_mask")[i]);
  }
  for (std::size_t i = 0; i < 50 * 64; ++i) {
    EXPECT_EQ(static_cast<double>(batch.tokens[i]), expected.at("text_dec")[i]);
    EXPECT_EQ(batch.loss_mask[i], expected.at("loss_mask")[i]);
    // Megatron's -1, which is in no vocabulary, is 0 here.
    EXPECT_EQ(static_cast<double>(batch.labels[i]), std::max(expected.at("labels")[i], 0.0));
  }
}

TEST(T5Dataset, CachesMegatronsIndex) {
  log::set_level(log::Level::kError);
  const test::TempFolder folder;
  const auto source = std::make_shared<IndexedDataset>(test::vector_path("indexed/bert_uint16"));
  const IndexCache cache(folder / "cache");
  const T5Dataset built(source, megatrons_t5_plan(*source), cache, {.kind = "k", .description = "same"});
  const auto kept = [&folder] {
    for (const auto& file : std::filesystem::directory_iterator(folder / "cache"))
      if (file.path().string().ends_with("-sample_index.npy")) return read_file(file.path());
    return std::string();
  };
  const std::string megatrons = read_file(test::vector_path("indexed/masked/t5_span.sample_index.npy"));
  EXPECT_EQ(kept(), megatrons);
  const SampleOrder order = built.orders()[0];
  EXPECT_EQ(order.passes, 2);
  EXPECT_EQ(order.asked, 400);
  EXPECT_EQ(T5Dataset(source, megatrons_t5_plan(*source), cache, {.kind = "k", .description = "same"})
                .orders()[0]
                .passes,
            2);
  // Every parameter of the index triggers a rebuild, even those that are not in Megatron's description.
  std::vector<T5Plan> others(5, megatrons_t5_plan(*source));
  others[0].sentences.seed = 14;
  others[1].sentences.max_length = 100;
  others[2].sentences.short_seq_prob = 0.2;
  others[3].sentences.num_samples = 500;
  others[4].sentences.documents.begin = 1;
  for (const T5Plan& plan : others) {
    (void)T5Dataset(source, plan, cache, {.kind = "k", .description = "same"});
    EXPECT_NE(kept(), megatrons);
    (void)T5Dataset(source, megatrons_t5_plan(*source), cache, {.kind = "k", .description = "same"});
    EXPECT_EQ(kept(), megatrons);
  }
  // Data that do not match the index.
  const auto less = std::make_shared<Sentences>(std::vector<Ints>(300, Ints{4}));
  T5Plan plan = megatrons_t5_plan(*source);
  EXPECT_THAT(test::message_of<DataError>([&] {
                const T5Dataset wrong(less, plan, cache, {.kind = "k", .description = "same"});
                for (std::int64_t i = 0; i < wrong.size(); ++i) (void)wrong.text(i);
              }),
              HasSubstr("delete the cache"));
  log::set_level(log::Level::kInfo);
}

TEST(T5Dataset, DistributesTextToEncoderAndDecoder) {
  const T5Dataset dataset = small({Ints(1, 40)});
  Ints numbers(128 + 64 + 64);
  dataset.tokens(0, -5, numbers);
  Ints text, masked;
  for (const std::int64_t id : std::span(numbers).first(128))
    if (id >= 0 && id < 2000) text.push_back(id);
  const std::span<const std::int64_t> decoder = std::span(numbers).subspan(128, 64);
  const std::span<const std::int64_t> labels = std::span(numbers).last(64);
  EXPECT_EQ(decoder[0], 2100);
  const auto count = static_cast<std::size_t>(std::ranges::find(labels, 2101) - labels.begin());
  for (std::size_t i = 0; i < count; ++i) {
    EXPECT_EQ(labels[i], decoder[i + 1]) << i;
    if (labels[i] < 2000) masked.push_back(labels[i]);
  }
  EXPECT_TRUE(std::ranges::all_of(decoder.subspan(count + 1), [](auto id) { return id == -5; }));
  EXPECT_TRUE(std::ranges::all_of(labels.subspan(count + 1), [](auto id) { return id == -1; }));
  EXPECT_EQ(masked.size(), 6U);  // 15 % of 40
  text.insert(text.end(), masked.begin(), masked.end());
  std::ranges::sort(text);
  Ints whole(40);
  std::iota(whole.begin(), whole.end(), 10);
  EXPECT_EQ(text, whole);
}

TEST(T5Dataset, TruncatesTextToTheTargetLength) {
  const T5Dataset dataset = small({{1000000000}, {100, 26}, {100, 27}, {0}},
                                  [](T5Plan& plan) { plan.sentences.short_seq_prob = 0; });
  for (std::int64_t i = 0; i < dataset.size(); ++i) {
    const std::int64_t first = dataset.index().sample[3 * i];
    const T5Dataset::Text text = dataset.text(i);
    EXPECT_EQ(text.tokens.size(), first == 5 ? 0U : 126U);
    EXPECT_EQ(text.truncated, first == 0 || first == 3) << first;
  }
  std::int64_t used = 0;
  for (std::int64_t i = 0; i < dataset.size(); ++i) used += std::ssize(dataset.text(i).tokens);
  const SampleOrder order = dataset.orders()[0];
  EXPECT_EQ(dataset.index().unused.documents, 0);
  EXPECT_EQ(dataset.index().unused.truncated_tokens, order.passes * order.tokens - used);
}

TEST(T5Dataset, ReportsTooFewSentinelsAndShortDecoders) {
  const auto error_message = [](const std::function<void(T5Plan&)>& change) {
    const T5Dataset dataset = small(std::vector<Ints>(50, Ints{120}), change);
    return test::message_of<DataError>([&] {
      Ints numbers(128 + 2 * 20);
      for (std::int64_t i = 0; i < dataset.size(); ++i) dataset.tokens(i, 0, numbers);
    });
  };
  EXPECT_THAT(error_message([](T5Plan& plan) { plan.decoder_length = 20; }),
              HasSubstr("--decoder-seq-length 20; raise it"));
  EXPECT_THAT(error_message([](T5Plan& plan) {
                plan.decoder_length = 20;
                plan.ids.sentinels.resize(2);
              }),
              HasSubstr("raise --vocab-extra-ids"));
  const T5Dataset dataset = small({{5}});
  EXPECT_THAT(test::message_of<DataError>([&] { (void)dataset.text(1); }),
              HasSubstr("sample numbers must be 0 to 0; got 1"));
}

}  // namespace
}  // namespace colonnade::data
