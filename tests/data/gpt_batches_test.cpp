// Batches of a run: blends and splits as Megatron's, mock data, sampler orders, prefetching, errors.
#include "colonnade/data/gpt_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/data/indexed_dataset.h"
#include "colonnade/data/mock_source.h"
#include "colonnade/data/prefetcher.h"
#include "data/vectors.h"

namespace colonnade::data {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<std::int64_t>;

class GptBatchesTest : public ::testing::Test {
 protected:
  GptBatchesTest() {
    log::set_level(log::Level::kError);
    data_.data_cache_path = folder_ / "cache";
    training_.seq_length = 64;
    training_.global_batch_size = 8;
    training_.seed = 99;
    training_.eval_iters = 0;
  }
  ~GptBatchesTest() override { log::set_level(log::Level::kInfo); }

  TempFolder folder_;
  config::Data data_;
  config::Training training_;
  const TokenIds ids_{.vocab_size = 1025, .eod = 1024};
  const std::string first_ = vector_path("indexed/gpt_uint16");
  const std::string second_ = vector_path("indexed/gpt2_uint16");
};

void expect_blend(const SampleSource& source, const std::string& name) {
  const auto& blend = dynamic_cast<const BlendedDataset&>(source);
  const IntArray dataset = IntArray::map(vector_path("indexed/gpt/blend_" + name + ".dataset_index.npy"));
  const IntArray sample =
      IntArray::map(vector_path("indexed/gpt/blend_" + name + ".dataset_sample_index.npy"));
  ASSERT_EQ(blend.size(), dataset.rows());
  for (std::int64_t i = 0; i < blend.size(); ++i) {
    EXPECT_EQ(blend.index().dataset[i], dataset[i]) << name << " " << i;
    EXPECT_EQ(blend.index().sample[i], sample[i]) << name << " " << i;
  }
  const auto expected = read_tensors("indexed/gpt/blend_" + name + ".first.safetensors");
  for (std::size_t i = 0; i < 50; ++i) {
    Ints text(65);
    blend.tokens(static_cast<std::int64_t>(i), -1, text);
    EXPECT_TRUE(std::equal(text.begin(), text.end() - 1,
                           expected.at("tokens").begin() + static_cast<std::ptrdiff_t>(64 * i)))
        << i;
  }
}

TEST_F(GptBatchesTest, BlendsAsMegatron) {
  data_.data_path = {"0.3", first_, "0.7", second_};
  data_.split = "95,5,0";
  const auto weighted = open_gpt_samples(data_, {700, 20, 0}, 64, 99, ids_);
  expect_blend(*weighted[0], "weighted");
  const auto& parts = dynamic_cast<const BlendedDataset&>(*weighted[0]).datasets();
  EXPECT_EQ(parts[0]->size(), 835);
  EXPECT_EQ(parts[1]->size(), 680);
  EXPECT_EQ(weighted[2], nullptr);
  data_.data_path = {"30", first_, "12.5", second_};
  data_.split = "1,0,0";
  expect_blend(*open_gpt_samples(data_, {333, 0, 0}, 64, 99, ids_)[0], "unnormalized");
}

TEST_F(GptBatchesTest, BlendsWithoutWeightsBySizeUpToTheNumberAsked) {
  data_.data_path = {first_, second_};
  data_.split = "1,0,0";
  const auto samples = open_gpt_samples(data_, {100, 0, 0}, 64, 99, ids_);
  EXPECT_EQ(samples[0]->size(), 100);
  const auto all = open_gpt_samples(data_, {100000, 0, 0}, 64, 99, ids_);
  EXPECT_EQ(all[0]->size(), 883 + 712);
}

TEST_F(GptBatchesTest, ExhaustiveBlendsEqualMegatrons) {
  const auto part = [](const std::string& prefix) {
    const auto source = std::make_shared<IndexedDataset>(prefix);
    const GptIndexPlan plan{.sequences = {0, source->num_sequences()},
                            .sequence_length = 64,
                            .num_samples = std::nullopt,
                            .seed = 99};
    return std::make_shared<GptDataset>(source, plan, IndexCache({}), "");
  };
  const auto a = part(first_);
  const auto b = part(second_);
  expect_blend(BlendedDataset({a, b}, blend_exhaustively(Ints{a->size(), b->size()})), "exhaustive");
}

TEST_F(GptBatchesTest, ReadsPathsPerSplit) {
  data_.train_data_path = {first_};
  data_.valid_data_path = {second_};
  const auto samples = open_gpt_samples(data_, {10, 10, 10}, 64, 99, ids_);
  EXPECT_EQ(samples[0]->size(), 883);
  EXPECT_EQ(samples[1]->size(), 712);
  EXPECT_EQ(samples[2], nullptr);
}

TEST_F(GptBatchesTest, GivesTheTokensOfTheRecordedTrainingRun) {
  data_.data_path = {first_};
  data_.split = "1,0,0";
  training_.train_iters = 40;
  training_.seed = 1235;
  const GptSplits splits = open_gpt_batches(data_, training_, ids_);
  const auto recorded = read_tensors("trajectory/tokens.safetensors").begin()->second;
  const HostBatch run = splits[0]->get(0, 320);
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    const std::size_t row = i / 65;
    const std::size_t column = i % 65;
    const auto got = column < 64 ? run.tokens[64 * row + column] : run.labels[64 * row + 63];
    ASSERT_EQ(static_cast<double>(got), recorded[i]) << "row " << row << " column " << column;
  }
}

TEST_F(GptBatchesTest, CountsSamplesAsMegatron) {
  training_.train_iters = 100;
  training_.eval_interval = 30;
  training_.eval_iters = 5;
  EXPECT_EQ(sample_counts(training_), (std::array<std::int64_t, 3>{800, 4 * 5 * 8, 5 * 8}));
  training_.train_iters.reset();
  training_.train_samples = 500;
  EXPECT_EQ(sample_counts(training_), (std::array<std::int64_t, 3>{500, 3 * 5 * 8, 5 * 8}));
}

// The first samples of MockGPTDataset, computed with NumPy from its definition (seed 1234, 20 samples of 16).
TEST_F(GptBatchesTest, MockDataEqualsMegatrons) {
  data_.mock_data = true;
  training_.seq_length = 16;
  training_.train_samples = 20;
  training_.seed = 1234;
  const GptSplits splits = open_gpt_batches(data_, training_, {.vocab_size = 100, .eod = 99});
  EXPECT_EQ(splits[0]->size(), 4261893);
  const HostBatch batch = splits[0]->get(0, 3);
  EXPECT_EQ(batch.tokens, (Ints{55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70,
                                79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94,
                                74, 75, 76, 77, 78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89}));
  EXPECT_EQ(MockSource(100, 99).length(0), 3484);
  Ints tokens(3);
  MockSource(100, 99).tokens(0, 3481, tokens);
  EXPECT_EQ(tokens, (Ints{82, 83, 99}));
}

TEST_F(GptBatchesTest, ABatchDependsOnItsNumbersOnly) {
  data_.data_path = {first_};
  training_.train_iters = 10;
  for (const char* type : {"single", "cyclic"}) {
    data_.dataloader_type = type;
    const GptSplits splits = open_gpt_batches(data_, training_, ids_);
    const HostBatch whole = splits[0]->get(838, 16);  // crosses the end of a cyclic epoch
    for (std::int64_t row = 0; row < 16; row += 2) {
      if (838 + row + 2 > splits[0]->size() && std::string(type) == "single") break;
      const HostBatch part = splits[0]->get(838 + row, 2);
      EXPECT_TRUE(std::equal(part.tokens.begin(), part.tokens.end(), whole.tokens.begin() + row * 64))
          << type << row;
    }
    if (std::string(type) == "single") {
      EXPECT_THROW((void)splits[0]->get(splits[0]->size(), 1), DataError);
    }
  }
}

TEST_F(GptBatchesTest, CyclicEpochsHoldEachSampleOnce) {
  data_.data_path = {first_};
  data_.dataloader_type = "cyclic";
  training_.train_iters = 10;
  const GptSplits splits = open_gpt_batches(data_, training_, ids_);
  const std::int64_t epoch = splits[0]->size() / 8 * 8;
  EXPECT_TRUE(splits[0]->endless());
  for (const std::int64_t number : {0, 1}) {
    Ints order = CyclicOrder(splits[0]->size(), 8).order(number);
    const HostBatch got = splits[0]->get(number * epoch, epoch);
    for (std::int64_t i = 0; i < epoch; ++i) {
      const auto row = static_cast<std::size_t>(i);
      EXPECT_EQ(got.samples[row], number * epoch + i);  // an epoch later a sample has another dropout
      Ints text(65);
      splits[0]->samples().tokens(order[row], ids_.pad, text);
      ASSERT_TRUE(std::equal(text.begin(), text.end() - 1, got.tokens.begin() + 64 * i)) << i;
    }
    std::sort(order.begin(), order.end());
    for (std::int64_t i = 0; i < epoch; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  }
}

TEST_F(GptBatchesTest, PrefetchingChangesNothing) {
  data_.data_path = {first_};
  training_.train_iters = 10;
  const GptSplits splits = open_gpt_batches(data_, training_, ids_);
  for (const int workers : {0, 1, 4}) {
    Prefetcher prefetcher([&](std::int64_t i) { return splits[0]->get(4 * i, 4); }, workers);
    for (std::int64_t i = 0; i < 50; ++i)
      EXPECT_EQ(prefetcher.next().tokens, splits[0]->get(4 * i, 4).tokens) << workers;
  }
}

TEST_F(GptBatchesTest, PrefetchingHandsErrorsToTheStepTheyBelongTo) {
  for (const int workers : {0, 3}) {
    Prefetcher prefetcher(
        [](std::int64_t i) -> HostBatch {
          if (i == 2) throw DataError("batch 2 is damaged");
          return {.micro_batch = i};
        },
        workers);
    EXPECT_EQ(prefetcher.next().micro_batch, 0);
    EXPECT_EQ(prefetcher.next().micro_batch, 1);
    EXPECT_EQ(message_of<DataError>([&] { prefetcher.next(); }), "batch 2 is damaged");
  }
}

TEST_F(GptBatchesTest, SaysWhatIsWrongWithTheSettings) {
  const auto open = [this] { (void)open_gpt_batches(data_, training_, ids_); };
  EXPECT_THAT(message_of<ConfigError>(open), HasSubstr("add --mock-data"));
  data_.data_path = {first_};
  data_.mock_data = true;
  EXPECT_THAT(message_of<ConfigError>(open), HasSubstr("exactly one of"));
  data_.mock_data = false;
  training_.train_iters = 10;
  data_.dataloader_type = "external";
  EXPECT_THAT(message_of<ConfigError>(open), HasSubstr("--dataloader-type"));
  data_.dataloader_type = "single";
  training_.seq_length = 1000000;
  EXPECT_THAT(message_of<DataError>(open), HasSubstr("must hold one sample of 1000001 tokens; got 54"));
  data_.data_path = {folder_ / "nothing"};
  EXPECT_THAT(message_of<DataError>(open), HasSubstr("no such file"));
}

TEST_F(GptBatchesTest, RefusesTokensOutsideOfTheVocabulary) {
  data_.data_path = {first_};
  training_.train_iters = 10;
  const GptSplits splits = open_gpt_batches(data_, training_, {.vocab_size = 1000, .eod = 999});
  EXPECT_THAT(message_of<DataError>([&] { (void)splits[0]->get(0, 80); }),
              HasSubstr("must be below the vocabulary size 1000"));
}

}  // namespace
}  // namespace colonnade::data
