// Batches of T5: orders, splits, blends, mock data, malformed data, errors.
#include "colonnade/data/samples/t5/t5_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "colonnade/data/prefetcher.h"
#include "colonnade/data/samples/t5/t5_dataset.h"
#include "data/sentences.h"

namespace colonnade::data {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<std::int64_t>;

class T5BatchesTest : public SentenceBatchesTest {
 protected:
  T5BatchesTest() { training_.decoder_seq_length = 32; }

  [[nodiscard]] Splits open() const override { return open_t5_batches(data_, training_, ids_); }

  T5Ids ids_ = t5_ids(nullptr, 2100, 100);
};

TEST_F(T5BatchesTest, MatchMegatronsSamples) {
  training_.seq_length = 128;
  training_.decoder_seq_length = 64;
  training_.seed = 13;
  training_.train_iters = 50;
  training_.eval_iters = 5;
  data_.split = "90,10,0";
  const Splits splits = open();
  std::set<std::string> kept, expected;
  for (const auto& file : std::filesystem::directory_iterator(folder_ / "cache"))
    if (file.path().string().ends_with("-sample_index.npy")) kept.insert(read_file(file.path()));
  for (const std::string name :
       {"t5_span.sample_index",
        "cache_t5_span/81b3cf429d023171e26280fdade5836b-T5MaskedWordPieceDataset-sample_index"})
    expected.insert(read_file(test::vector_path("indexed/masked/" + name + ".npy")));
  EXPECT_EQ(kept, expected);

  // Megatron's descriptions, except for the path and the tokenizer of this run.
  std::set<std::string> described, megatrons;
  for (const auto& file : std::filesystem::directory_iterator(folder_ / "cache"))
    if (file.path().string().ends_with("T5MaskedWordPieceDataset-description.txt"))
      described.insert(read_file(file.path()));
  for (const std::string hash : {"81b3cf429d023171e26280fdade5836b", "1445a29ba6bc1b5a1f328d9c53b2dab3"}) {
    std::string text = read_file(test::vector_path("indexed/masked/cache_t5_span/" + hash +
                                                   "-T5MaskedWordPieceDataset-description.txt"));
    const std::size_t path = text.find("indexed/bert_uint16");
    text.replace(path, std::string("indexed/bert_uint16").size(), data_.data_path[0]);
    const std::size_t begin = text.find("{\n        \"class\"");
    text.replace(begin, text.find('}', begin) + 1 - begin, "null");
    megatrons.insert(text);
  }
  EXPECT_EQ(described, megatrons);
}

void expect_same(const HostBatch& part, const HostBatch& whole, std::size_t row) {
  const auto equal = [&](const auto& some, const auto& all, std::int64_t width) {
    return std::equal(some.begin(), some.end(),
                      all.begin() + static_cast<std::ptrdiff_t>(row) * static_cast<std::ptrdiff_t>(width));
  };
  EXPECT_TRUE(equal(part.tokens, whole.tokens, whole.seq)) << row;
  EXPECT_TRUE(equal(part.labels, whole.labels, whole.seq)) << row;
  EXPECT_TRUE(equal(part.loss_mask, whole.loss_mask, whole.seq)) << row;
  EXPECT_TRUE(equal(part.encoder_tokens, whole.encoder_tokens, whole.encoder_seq)) << row;
  EXPECT_TRUE(equal(part.encoder_padding, whole.encoder_padding, whole.encoder_seq)) << row;
  EXPECT_TRUE(equal(part.samples, whole.samples, 1)) << row;
}

TEST_F(T5BatchesTest, HoldTheInputsOfEncoderAndDecoder) {
  const Splits splits = open();
  ASSERT_NE(splits[0], nullptr);
  ASSERT_NE(splits[1], nullptr);
  EXPECT_EQ(splits[2], nullptr);
  EXPECT_GE(splits[0]->size(), 240);
  EXPECT_FALSE(splits[0]->is_cyclic());
  const HostBatch batch = splits[0]->get(8, 4);
  EXPECT_EQ(batch.micro_batch, 4);
  EXPECT_EQ(batch.seq, 32);
  EXPECT_EQ(batch.encoder_seq, 64);
  EXPECT_EQ(batch.tokens.size(), 4U * 32);
  EXPECT_EQ(batch.labels.size(), 4U * 32);
  EXPECT_EQ(batch.loss_mask.size(), 4U * 32);
  EXPECT_EQ(batch.encoder_tokens.size(), 4U * 64);
  EXPECT_EQ(batch.encoder_padding.size(), 4U * 64);
  EXPECT_TRUE(batch.position_ids.empty());
  EXPECT_TRUE(batch.cu_seqlens.empty());
  EXPECT_EQ(batch.samples, (Ints{8, 9, 10, 11}));
  for (std::size_t row = 0; row < 4; ++row) {
    EXPECT_EQ(batch.tokens[32 * row], ids_.bos);
    const auto labels = std::span(batch.labels).subspan(32 * row, 32);
    const auto end = std::ranges::find(labels, ids_.eos) - labels.begin();
    for (std::ptrdiff_t i = 0; i < 32; ++i)
      EXPECT_EQ(batch.loss_mask[32 * row + static_cast<std::size_t>(i)], i <= end ? 1 : 0);
    EXPECT_EQ(batch.encoder_padding[64 * row], 0);
    EXPECT_EQ(batch.encoder_padding[64 * row + 63], 1);
    EXPECT_EQ(batch.encoder_tokens[64 * row + 63], 0);
  }
}

TEST_F(T5BatchesTest, DependOnlyOnSampleNumbers) {
  for (const char* type : {"single", "cyclic"}) {
    data_.dataloader_type = type;
    const Splits splits = open();
    EXPECT_EQ(splits[0]->is_cyclic(), std::string(type) == "cyclic");
    const HostBatch batch = splits[0]->get(200, 16);
    // Resumed at any number, in micro-batches of any size and by other objects.
    const Splits reopened = open();
    for (std::size_t row = 0; row < 16; row += 4)
      expect_same(reopened[0]->get(200 + static_cast<std::int64_t>(row), 4), batch, row);
    expect_same(reopened[0]->get(std::array<std::int64_t, 1>{215}), batch, 15);
    for (const int workers : {0, 1, 4}) {
      Prefetcher<HostBatch> prefetcher([&](std::int64_t i) { return splits[0]->get(200 + 2 * i, 2); },
                                       workers);
      for (std::size_t row = 0; row < 16; row += 2) expect_same(prefetcher.next(), batch, row);
    }
  }
}

TEST_F(T5BatchesTest, CyclicEpochsHoldEachSampleOnce) {
  data_.dataloader_type = "cyclic";
  const Splits splits = open();
  const std::int64_t epoch = splits[0]->permuted();
  EXPECT_EQ(epoch, splits[0]->size() / 8 * 8);
  data_.dataloader_type = "single";
  const Splits in_order = open();
  for (const std::int64_t number : {0, 2}) {
    const Ints order = CyclicOrder(splits[0]->size(), 8).order(number);
    const HostBatch got = splits[0]->get(number * epoch, epoch);
    const HostBatch expected = in_order[0]->get(order);
    EXPECT_EQ(got.encoder_tokens, expected.encoder_tokens);
    EXPECT_EQ(got.labels, expected.labels);
  }
  EXPECT_THAT(test::message_of<DataError>([&] { (void)in_order[0]->get(in_order[0]->size(), 1); }),
              HasSubstr("train for fewer steps or add data"));
  data_.dataloader_type = "cyclic";
  training_.global_batch_size = 100000;
  training_.train_iters = 1;
  data_.data_path = {write({{30}, {20}})};
  data_.split = "1,0,0";
  EXPECT_EQ(error_message<ConfigError>(), "");  // repeated until there are enough samples
}

TEST_F(T5BatchesTest, SupportBlendsAndPathsPerSplit) {
  const std::string first = data_.data_path[0];
  const std::string second = write({{30, 12}, {20, 14, 17}, {60}});
  data_.data_path = {"0.25", first, "0.75", second};
  data_.split = "1,0,0";
  const Splits blend = open();
  EXPECT_EQ(blend[0]->size(), 240);
  const auto& samples = dynamic_cast<const BlendedDataset&>(blend[0]->samples());
  EXPECT_EQ(samples.orders()[1].tokens, 30 + 12 + 20 + 14 + 17 + 60);
  EXPECT_GE(samples.datasets()[1]->size(), 180);
  EXPECT_GT(samples.orders()[1].passes, 10);
  EXPECT_EQ(samples.passes(), samples.orders()[1].passes);
  Ints of_part(64 + 2 * 32), of_blend(64 + 2 * 32);
  for (std::int64_t i = 0; i < 100; ++i) {
    samples.tokens(i, -1, of_blend);
    const auto part = static_cast<std::size_t>(samples.index().dataset[i]);
    samples.datasets()[part]->tokens(samples.index().sample[i], -1, of_part);
    EXPECT_EQ(of_blend, of_part) << i;
  }
  data_.data_path = {first, second};
  EXPECT_EQ(open()[0]->samples().orders()[1].asked, std::nullopt);
  data_.data_path.clear();
  data_.train_data_path = {first};
  data_.valid_data_path = {second};
  const Splits splits = open();
  EXPECT_EQ(splits[0]->samples().name(), first);
  EXPECT_EQ(splits[1]->samples().name(), second);
  EXPECT_EQ(splits[2], nullptr);
}

// The second document is left out for its long sentence; the third fills one sample, which loses two tokens.
TEST_F(T5BatchesTest, UnusedTextIsReported) {
  data_.data_path = {write({{30}, {20, 513, 17}, {64}})};
  data_.split = "1,0,0";
  data_.short_seq_prob = 0;
  for (const char* when : {"built", "mapped"}) {
    SCOPED_TRACE(when);
    testing::internal::CaptureStderr();
    log::set_level(log::Level::kWarning);
    (void)open();
    log::set_level(log::Level::kError);
    const std::string warnings = testing::internal::GetCapturedStderr();
    EXPECT_THAT(warnings,
                HasSubstr("1 of 3 documents of the train split are left out, with 85.4 % of its tokens"));
    EXPECT_THAT(warnings,
                HasSubstr("2.1 % of the tokens of the train split's samples exceed the sample length"));
  }
}

TEST_F(T5BatchesTest, PaddingDependsOnPositionsNotOnIds) {
  data_.data_path = {write({{30}, {20, 14, 17}})};  // of token 7
  data_.split = "1,0,0";
  const HostBatch other = open()[0]->get(0, 8);
  ids_.pad = 7;
  const HostBatch batch = open()[0]->get(0, 8);
  EXPECT_EQ(batch.encoder_padding, other.encoder_padding);
  EXPECT_EQ(batch.loss_mask, other.loss_mask);
  EXPECT_EQ(std::ranges::count(batch.encoder_tokens, 7), 0);
}

TEST_F(T5BatchesTest, RejectSentinelsInNumericText) {
  data_.data_path = {write({{30}, {20, 14, 17}})};
  data_.split = "1,0,0";
  ids_ = t5_ids(nullptr, 108, 100);  // the end of document is 7, which is allowed in text
  EXPECT_EQ(error_message<DataError>(), "");
  ids_ = t5_ids(nullptr, 107, 100);
  EXPECT_THAT(error_message<DataError>(), HasSubstr("must be below 7, the first special id"));
}

TEST_F(T5BatchesTest, MockDataHaveNoSentinelsInText) {
  data_.data_path.clear();
  data_.mock_data = true;
  ids_ = t5_ids(nullptr, 60, 20);  // text of 0 to 39
  const Splits splits = open();
  const HostBatch batch = splits[0]->get(0, 32);
  EXPECT_EQ(batch.samples.size(), 32U);
  std::int64_t sentinels = 0;
  for (const std::int64_t id : batch.encoder_tokens) {
    EXPECT_GE(id, 0);
    if (id < 40) continue;
    EXPECT_LT(id, 40 + 10);  // a row has few spans
    ++sentinels;
  }
  EXPECT_GT(sentinels, 32);
  const auto documents = [](const Batches& batches) {
    return dynamic_cast<const T5Dataset&>(batches.samples()).orders()[0].tokens;
  };
  EXPECT_GT(documents(*splits[0]), std::int64_t{33000} * 2000);
  EXPECT_NE(splits[2], nullptr);
}

TEST_F(T5BatchesTest, SettingsChangeTheSamples) {
  const auto first = [this] { return open()[0]->get(0, 16); };
  const auto masked = [](const HostBatch& batch) { return std::ranges::count(batch.loss_mask, 1.0F); };
  const HostBatch usual = first();
  data_.mask_prob = 0.3;
  EXPECT_GT(masked(first()), masked(usual));
  data_.mask_prob = 0;
  EXPECT_EQ(masked(first()), 16);  // only eos
  data_.mask_prob = 0.15;
  data_.short_seq_prob = 1;
  EXPECT_NE(first().encoder_tokens, usual.encoder_tokens);
  data_.short_seq_prob = 0.1;
  training_.seed = 100;
  EXPECT_NE(first().encoder_tokens, usual.encoder_tokens);
}

TEST_F(T5BatchesTest, ReportBadSettings) {
  training_.decoder_seq_length = 0;
  EXPECT_THAT(error_message<ConfigError>(), HasSubstr("--decoder-seq-length must be 1 to"));
  training_.decoder_seq_length = 5;
  EXPECT_THAT(error_message<DataError>(), HasSubstr("--decoder-seq-length 5; raise it"));
  training_.decoder_seq_length = 32;
  training_.seq_length = 3;
  EXPECT_THAT(error_message<ConfigError>(), HasSubstr("--seq-length must be 4 to"));
  training_.seq_length = 64;
  training_.seed = -1;
  EXPECT_THAT(error_message<ConfigError>(), HasSubstr("--seed"));
  training_.seed = 99;
  data_.dataloader_type = "external";
  EXPECT_THAT(error_message<ConfigError>(), HasSubstr("--dataloader-type"));
  data_.dataloader_type = "single";
  ids_.sentinels.clear();
  EXPECT_THAT(error_message<ConfigError>(), HasSubstr("--vocab-extra-ids"));
  ids_ = t5_ids(nullptr, 2100, 1);
  EXPECT_THAT(error_message<DataError>(), HasSubstr("with 1 of 2; raise --vocab-extra-ids"));
  ids_ = t5_ids(nullptr, 1000, 100);
  ids_.text_end = 0;  // as with a tokenizer file
  EXPECT_THAT(error_message<DataError>(), HasSubstr("must be 0 to 999"));
  data_.mock_data = true;
  EXPECT_THAT(error_message<ConfigError>(), HasSubstr("exactly one of"));
}

TEST_F(T5BatchesTest, MalformedDataAreRejectedOrSkipped) {
  data_.split = "1,0,0";
  data_.data_path = {write({})};
  EXPECT_THAT(error_message<DataError>(), HasSubstr("a document must have 1 or more sentences"));
  data_.data_path = {write({{}, {}})};
  EXPECT_THAT(error_message<DataError>(), HasSubstr("got no such document among 0 to 2"));
  data_.data_path = {write({{600, 3}})};
  EXPECT_THAT(error_message<DataError>(), HasSubstr("none of several longer than 512 tokens"));
  data_.data_path = {write({{0}, {30}})};
  EXPECT_THAT(error_message<DataError>(), HasSubstr("a sample must have tokens"));
  data_.data_path = {write({{}, {600, 3}, {700}, {4, 4}, {}})};
  EXPECT_EQ(error_message<DataError>(), "");
  // An evaluation split without data is skipped; training without data is an error.
  data_.split = "80,20,0";
  EXPECT_EQ(open()[1], nullptr);
  data_.data_path = {write({{}, {5}})};
  data_.split = "50,50,0";
  EXPECT_THAT(error_message<DataError>(), HasSubstr("document among 0 to 1"));
}

}  // namespace
}  // namespace colonnade::data
