// GPT batches: blends and splits against Megatron's, mock data, sampler orders, prefetching, errors.
#include "colonnade/data/samples/gpt/gpt_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/config/parse.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "colonnade/data/mock_source.h"
#include "colonnade/data/prefetcher.h"
#include "support/files.h"

namespace colonnade::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;
using Ints = std::vector<std::int64_t>;
using Words = std::vector<std::string>;

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

  test::TempFolder folder_;
  config::Data data_;
  config::Training training_;
  const TokenIds ids_{.vocab_size = 1025, .eod = 1024};
  const std::string first_ = test::vector_path("indexed/gpt_uint16");
  const std::string second_ = test::vector_path("indexed/gpt2_uint16");
};

void expect_blend(const SampleSource& source, const std::string& name) {
  const auto& blend = dynamic_cast<const BlendedDataset&>(source);
  const IntArray dataset =
      IntArray::map(test::vector_path("indexed/gpt/blend_" + name + ".dataset_index.npy"));
  const IntArray sample =
      IntArray::map(test::vector_path("indexed/gpt/blend_" + name + ".dataset_sample_index.npy"));
  ASSERT_EQ(blend.size(), dataset.rows());
  for (std::int64_t i = 0; i < blend.size(); ++i) {
    EXPECT_EQ(blend.index().dataset[i], dataset[i]) << name << " " << i;
    EXPECT_EQ(blend.index().sample[i], sample[i]) << name << " " << i;
  }
  const auto expected = test::read_tensors("indexed/gpt/blend_" + name + ".first.safetensors");
  for (std::size_t i = 0; i < 50; ++i) {
    Ints text(65);
    blend.tokens(static_cast<std::int64_t>(i), -1, text);
    EXPECT_TRUE(std::equal(text.begin(), text.end() - 1,
                           expected.at("tokens").begin() + static_cast<std::ptrdiff_t>(64 * i)))
        << i;
  }
}

TEST_F(GptBatchesTest, BlendsMatchMegatrons) {
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

/// The file mapped at `address`; "" for private memory.
std::string file_mapped_at(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%zx-%zx", &begin, &end) != 2 || wanted < begin || wanted >= end) continue;
    const std::size_t path = line.find('/');
    return path == std::string::npos ? "" : line.substr(path);
  }
  return "";
}

/// The path prefix before `name` of a file under `root`.
std::string entry_with(const fs::path& root, const std::string& name) {
  for (const auto& file : fs::recursive_directory_iterator(root))
    if (const std::string path = file.path().string(); path.ends_with("-" + name))
      return path.substr(0, path.size() - name.size());
  return {};
}

TEST_F(GptBatchesTest, ConcurrentlyOpenedBlendsMatchSequentiallyOpenedOnes) {
  // Every data set several times, with the same cache entry: the threads compete for it.
  const std::vector<std::string> prefixes{first_, second_, first_, first_, second_, first_, second_, second_};
  for (const std::string& prefix : prefixes) data_.data_path.insert(data_.data_path.end(), {"1", prefix});
  for (int round = 0; round < 10; ++round) {
    data_.data_cache_path = folder_ / fmt::format("cache{}", round);
    data_.split = "1,0,0";
    const auto samples = open_gpt_samples(data_, {4000, 0, 0}, 64, 99, ids_)[0];
    const auto& blend = dynamic_cast<const BlendedDataset&>(*samples);
    for (std::size_t i = 0; i < prefixes.size(); ++i) {
      config::Data alone = data_;
      alone.data_path = {prefixes[i]};
      alone.data_cache_path = folder_ / "alone";
      const std::int64_t samples_each = samples_per_dataset(std::vector<double>(8, 0.125), 4000, 0.005)[0];
      const auto expected = open_gpt_samples(alone, {samples_each, 0, 0}, 64, 99, ids_)[0];
      Ints text(65), wanted(65);
      blend.tokens(static_cast<std::int64_t>(i), -1, text);  // the first of each, in turn
      ASSERT_EQ(blend.index().dataset[static_cast<std::int64_t>(i)], static_cast<std::int64_t>(i));
      expected->tokens(0, -1, wanted);
      EXPECT_EQ(text, wanted) << i;
    }
    for (const auto& file : fs::directory_iterator(data_.data_cache_path))
      EXPECT_THAT(file.path().string(), Not(HasSubstr(".part-"))) << "not removed";
  }
}

TEST_F(GptBatchesTest, BlendsReportTheFirstFailingDataset) {
  const auto write = [this](const std::string& name) {
    IndexedDatasetBuilder builder(folder_ / name, TokenType::kUint16);
    builder.add_document(std::vector<std::int32_t>{1, 2, 3}, std::vector<std::int32_t>{3});
    builder.finalize();
    return folder_ / name;
  };
  data_.data_path = {"1", first_,          "1", second_,        "1", write("short1"),
                     "1", write("short2"), "1", write("short3")};
  data_.split = "1,0,0";
  for (int round = 0; round < 20; ++round)
    EXPECT_THAT(test::message_of<DataError>([this] {
                  (void)open_gpt_samples(data_, {500, 0, 0}, 64, 99, ids_);
                }),
                HasSubstr("short1"));
}

TEST_F(GptBatchesTest, BlendIndicesAreBuiltOnceAndMapped) {
  data_.data_path = {"0.3", first_, "0.7", second_};
  data_.split = "95,5,0";
  const auto open = [this] {
    auto samples = open_gpt_samples(data_, {700, 0, 0}, 64, 99, ids_)[0];
    return std::dynamic_pointer_cast<const BlendedDataset>(samples);
  };
  testing::internal::CaptureStderr();
  log::set_level(log::Level::kInfo);
  const auto built = open();
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("indexing a blend of 2 data sets (700 samples)"));
  const std::string entry = entry_with(folder_ / "cache", "dataset_index.npy");
  for (const std::string name : {"dataset_index.npy", "dataset_sample_index.npy"})
    EXPECT_EQ(read_file(entry + name), read_file(test::vector_path("indexed/gpt/blend_weighted." + name)))
        << name;

  // The next run reads the cached files: sample 0 of both data sets is swapped.
  ASSERT_NE(built->index().dataset[0], built->index().dataset[1]);
  for (const std::string name : {"dataset_index", "dataset_sample_index"}) {
    std::string bytes = read_file(entry + name + ".npy");
    const std::ptrdiff_t item = name == "dataset_index" ? 2 : 8;
    const auto first = bytes.end() - 700 * item;
    std::swap_ranges(first, first + item, first + item);
    write_file_atomically(entry + name + ".npy", bytes);
  }
  testing::internal::CaptureStderr();
  const auto reopened = open();
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(reopened->index().dataset[0], built->index().dataset[1]);
  EXPECT_EQ(reopened->index().dataset[1], built->index().dataset[0]);
  for (const auto& blend : {built, reopened}) {
    EXPECT_THAT(file_mapped_at(blend->index().dataset.bytes().data()), HasSubstr("-dataset_index.npy"));
    EXPECT_THAT(file_mapped_at(blend->index().sample.bytes().data()), HasSubstr("-dataset_sample_index.npy"));
  }
}

TEST_F(GptBatchesTest, BlendIndicesOfOtherDataAreRejected) {
  const auto source = std::make_shared<IndexedDataset>(first_);
  const GptIndexPlan plan{.sequences = {0, source->num_sequences()}, .sequence_length = 64};
  const auto part = std::make_shared<GptDataset>(source, plan, IndexCache({}), CacheKey{});
  const auto error_message = [&](std::vector<std::int16_t> dataset, std::vector<std::int64_t> sample) {
    return test::message_of<DataError>([&] {
      const BlendedDataset blend({part, part}, {IntArray(std::move(dataset)), IntArray(std::move(sample))});
      Ints text(65);
      for (std::int64_t i = 0; i < blend.size(); ++i) blend.tokens(i, -1, text);
    });
  };
  EXPECT_EQ(error_message({0, 1, 0, 1}, {0, 0, 1, 882}), "");
  EXPECT_THAT(error_message({0, 1, 0}, {0, 0, 1, 1}), HasSubstr("must fit each other"));
  EXPECT_THAT(error_message({0, 1, 0, 0}, {0, 883, 1, 2}), HasSubstr("raise --mid-level-dataset-surplus"));
  for (const std::int16_t wrong : {2, -1})
    EXPECT_THAT(error_message({0, wrong, 0, 1}, {0, 0, 1, 0}), HasSubstr("delete the cache")) << wrong;
}

TEST_F(GptBatchesTest, OrdersAreEqualIfAndOnlyIfSamplesAre) {
  data_.split = "1,0,0";
  const auto same = [](const std::vector<SampleOrder>& a, const std::vector<SampleOrder>& b) {
    return std::ranges::equal(a, b, [](const SampleOrder& x, const SampleOrder& y) {
      return x.tokens == y.tokens && x.passes == y.passes && x.separate_final_epoch == y.separate_final_epoch;
    });
  };
  const auto same_tokens = [](const SampleSource& a, const SampleSource& b) {
    Ints x(65), y(65);
    for (std::int64_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      a.tokens(i, -1, x);
      b.tokens(i, -1, y);
      if (x != y) return false;
    }
    return true;
  };
  for (const Words& path : {Words{second_}, Words{"0.4", second_, "0.6", first_}, Words{first_, second_}}) {
    data_.data_path = path;
    std::vector<std::shared_ptr<const SampleSource>> sources;
    // An epoch of the second data set gives 712 samples.
    for (const std::int64_t samples : {100, 700, 800, 1000, 1300, 1400, 1500, 2200, 4000})
      sources.push_back(open_gpt_samples(data_, {samples, 0, 0}, 64, 99, ids_)[0]);
    for (const auto& a : sources)
      for (const auto& b : sources)
        EXPECT_EQ(same(a->orders(), b->orders()), same_tokens(*a, *b))
            << path.size() << " words, " << a->size() << " and " << b->size();
  }
  data_.data_path = {second_};
  const SampleOrder twice = open_gpt_samples(data_, {800, 0, 0}, 64, 99, ids_)[0]->orders()[0];
  EXPECT_EQ(twice.passes, 2);
  EXPECT_TRUE(twice.separate_final_epoch);
  EXPECT_EQ(twice.asked, 800);
  EXPECT_EQ(twice.name, second_);
}

TEST_F(GptBatchesTest, UnweightedBlendsDrawBySizeUpToTheRequestedSamples) {
  data_.data_path = {first_, second_};
  data_.split = "1,0,0";
  const auto samples = open_gpt_samples(data_, {100, 0, 0}, 64, 99, ids_);
  EXPECT_EQ(samples[0]->size(), 100);
  const auto all = open_gpt_samples(data_, {100000, 0, 0}, 64, 99, ids_);
  EXPECT_EQ(all[0]->size(), 883 + 712);
}

TEST_F(GptBatchesTest, ExhaustiveBlendsMatchMegatrons) {
  const auto part = [](const std::string& prefix) {
    const auto source = std::make_shared<IndexedDataset>(prefix);
    const GptIndexPlan plan{.sequences = {0, source->num_sequences()},
                            .sequence_length = 64,
                            .num_samples = std::nullopt,
                            .seed = 99};
    return std::make_shared<GptDataset>(source, plan, IndexCache({}), CacheKey{});
  };
  const auto a = part(first_);
  const auto b = part(second_);
  expect_blend(BlendedDataset({a, b}, blend_exhaustively(Ints{a->size(), b->size()})), "exhaustive");
}

TEST_F(GptBatchesTest, ReadPathsPerSplit) {
  data_.train_data_path = {first_};
  data_.valid_data_path = {second_};
  const auto samples = open_gpt_samples(data_, {10, 10, 10}, 64, 99, ids_);
  EXPECT_EQ(samples[0]->size(), 883);
  EXPECT_EQ(samples[1]->size(), 712);
  EXPECT_EQ(samples[2], nullptr);
  data_.valid_data_path.clear();
  data_.test_data_path = config::parse({"gpt", "--test-data-path", second_}).data.test_data_path;
  const auto tested = open_gpt_samples(data_, {10, 10, 10}, 64, 99, ids_);
  EXPECT_EQ(tested[0]->size(), 883);
  EXPECT_EQ(tested[1], nullptr);
  ASSERT_NE(tested[2], nullptr);
  EXPECT_EQ(tested[2]->size(), 712);
}

TEST_F(GptBatchesTest, MatchTheTokensOfTheRecordedTrainingRun) {
  data_.data_path = {first_};
  data_.split = "1,0,0";
  training_.train_iters = 40;
  training_.seed = 1235;
  const Splits splits = open_gpt_batches(data_, training_, ids_);
  const auto recorded = test::read_tensors("trajectory/tokens.safetensors").begin()->second;
  const HostBatch run = splits[0]->get(0, 320);
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    const std::size_t row = i / 65;
    const std::size_t column = i % 65;
    const auto got = column < 64 ? run.tokens[64 * row + column] : run.labels[64 * row + 63];
    ASSERT_EQ(static_cast<double>(got), recorded[i]) << "row " << row << " column " << column;
  }
}

// The first samples of MockGPTDataset, computed with NumPy from its definition (seed 1234, 20 samples of 16).
TEST_F(GptBatchesTest, MockDataMatchMegatrons) {
  data_.mock_data = true;
  training_.seq_length = 16;
  training_.train_samples = 20;
  training_.seed = 1234;
  const Splits splits = open_gpt_batches(data_, training_, {.vocab_size = 100, .eod = 99});
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

TEST_F(GptBatchesTest, MockDataOfEverySplitMatchMegatronCores) {
  const auto manifest = nlohmann::json::parse(read_file(test::vector_path("mock/manifest.json")));
  data_.mock_data = true;
  const TokenIds ids{.vocab_size = manifest["vocab_size"], .eod = manifest["eod"]};
  const auto& splits = manifest["splits"];
  const auto sources =
      open_gpt_samples(data_, {splits["train"]["asked"], splits["valid"]["asked"], splits["test"]["asked"]},
                       64, manifest["config"]["random_seed"], ids);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::string name = kSplitNames[i];
    SCOPED_TRACE(name);
    EXPECT_EQ(sources[i]->size(), splits[name]["len"].get<std::int64_t>());
    const GptBatches batches(sources[i], {.seq_length = 64, .vocab_size = ids.vocab_size});
    const HostBatch batch = batches.get(0, manifest["samples"]);
    const auto expected = test::read_tensors("mock/" + name + ".safetensors");
    ASSERT_EQ(batch.tokens.size(), expected.at("tokens").size());
    EXPECT_TRUE(std::equal(batch.tokens.begin(), batch.tokens.end(), expected.at("tokens").begin()));
    EXPECT_TRUE(std::equal(batch.labels.begin(), batch.labels.end(), expected.at("labels").begin()));
  }
}

TEST_F(GptBatchesTest, DependOnlyOnSampleNumbers) {
  data_.data_path = {first_};
  training_.train_iters = 10;
  for (const char* type : {"single", "cyclic"}) {
    data_.dataloader_type = type;
    const Splits splits = open_gpt_batches(data_, training_, ids_);
    const HostBatch batch = splits[0]->get(838, 16);  // crosses the end of a cyclic epoch
    for (std::int64_t row = 0; row < 16; row += 2) {
      if (838 + row + 2 > splits[0]->size() && std::string(type) == "single") break;
      const HostBatch part = splits[0]->get(838 + row, 2);
      EXPECT_TRUE(std::equal(part.tokens.begin(), part.tokens.end(), batch.tokens.begin() + row * 64))
          << type << row;
    }
    if (std::string(type) == "single") {
      EXPECT_THROW((void)splits[0]->get(splits[0]->size(), 1), DataError);
    }
  }
}

// Trivial positions and masks are omitted; others, like the tokens, belong to their row.
TEST_F(GptBatchesTest, HoldPositionsAndMasksOfTheirRows) {
  data_.data_path = {first_};
  training_.train_iters = 10;
  const auto rows_from = [&](std::int64_t first) {
    const Splits splits = open_gpt_batches(data_, training_, ids_);
    HostBatch batch = splits[0]->get(first, 60), expected;
    for (std::int64_t row = first; row < first + 60; ++row) {
      Ints text(65), tokens(64), labels(64), positions(64);
      std::vector<float> mask(64);
      splits[0]->samples().tokens(row, ids_.pad, text);
      fill_sample(text,
                  {.eod = ids_.eod,
                   .pad = ids_.pad,
                   .reset_position_ids = data_.reset_position_ids,
                   .eod_mask_loss = data_.eod_mask_loss},
                  {tokens, labels, positions, mask});
      const auto append = [](auto& all, const auto& more) {
        all.insert(all.end(), more.begin(), more.end());
      };
      append(expected.tokens, tokens), append(expected.labels, labels);
      append(expected.position_ids, positions), append(expected.loss_mask, mask);
    }
    EXPECT_EQ(batch.tokens, expected.tokens);
    EXPECT_EQ(batch.labels, expected.labels);
    return std::pair(std::move(batch), std::move(expected));
  };
  {
    const auto [batch, expected] = rows_from(0);
    EXPECT_TRUE(batch.position_ids.empty() && batch.loss_mask.empty());
    EXPECT_EQ(std::ranges::count(expected.loss_mask, 1.0F), 60 * 64);
  }
  data_.eod_mask_loss = data_.reset_position_ids = true;
  const auto first_masked = [&](std::int64_t first) {
    const auto [batch, expected] = rows_from(first);
    EXPECT_EQ(batch.position_ids, expected.position_ids);
    EXPECT_EQ(batch.loss_mask, expected.loss_mask);
    return std::ranges::find(expected.loss_mask, 0.0F) - expected.loss_mask.begin();
  };
  std::int64_t first = 0;
  while (first < 100 && first_masked(first) < 64) ++first;
  EXPECT_LT(first, 100) << "no row without an end of document among the first ones";
  EXPECT_LT(first_masked(first), 60 * 64) << "later rows have one";
}

TEST_F(GptBatchesTest, CyclicEpochsHoldEachSampleOnce) {
  data_.data_path = {first_};
  data_.dataloader_type = "cyclic";
  training_.train_iters = 10;
  const Splits splits = open_gpt_batches(data_, training_, ids_);
  const std::int64_t epoch = splits[0]->size() / 8 * 8;
  EXPECT_TRUE(splits[0]->is_cyclic());
  EXPECT_EQ(splits[0]->permuted(), epoch);
  for (const std::int64_t number : {0, 1}) {
    Ints order = CyclicOrder(splits[0]->size(), 8).order(number);
    const HostBatch got = splits[0]->get(number * epoch, epoch);
    for (std::int64_t i = 0; i < epoch; ++i) {
      const auto row = static_cast<std::size_t>(i);
      EXPECT_EQ(got.samples[row], number * epoch + i);  // dropout differs in every epoch
      Ints text(65);
      splits[0]->samples().tokens(order[row], ids_.pad, text);
      ASSERT_TRUE(std::equal(text.begin(), text.end() - 1, got.tokens.begin() + 64 * i)) << i;
    }
    std::sort(order.begin(), order.end());
    for (std::int64_t i = 0; i < epoch; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  }
}

TEST_F(GptBatchesTest, CyclicSplitsWithoutAFullBatchAreReportedWhenTheDataAreOpened) {
  data_.data_path = {first_, second_};
  data_.split = "96,3,1";
  data_.dataloader_type = "cyclic";
  training_.train_iters = 10;
  training_.eval_iters = 1;
  const auto opened = [&](std::int64_t batch) {
    training_.global_batch_size = batch;
    return test::message_of<ConfigError>([this] { (void)open_gpt_batches(data_, training_, ids_); });
  };
  EXPECT_EQ(opened(64), "");  // evaluation splits are not read
  training_.eval_interval = 5;
  EXPECT_EQ(opened(8), "");
  EXPECT_THAT(opened(16), AllOf(HasSubstr("the test data must hold one global batch of 16 samples; got 13"),
                                Not(HasSubstr("valid"))));
  EXPECT_THAT(opened(64), AllOf(HasSubstr("the valid data must hold"), HasSubstr("the test data must hold")));
  data_.dataloader_type = "single";
  EXPECT_EQ(opened(64), "");
}

TEST_F(GptBatchesTest, PrefetchingChangesNothing) {
  data_.data_path = {first_};
  training_.train_iters = 10;
  const Splits splits = open_gpt_batches(data_, training_, ids_);
  for (const int workers : {0, 1, 4}) {
    Prefetcher<HostBatch> prefetcher([&](std::int64_t i) { return splits[0]->get(4 * i, 4); }, workers);
    for (std::int64_t i = 0; i < 50; ++i)
      EXPECT_EQ(prefetcher.next().tokens, splits[0]->get(4 * i, 4).tokens) << workers;
  }
}

TEST_F(GptBatchesTest, PrefetchingRethrowsErrorsInTheirStep) {
  for (const int workers : {0, 3}) {
    Prefetcher<HostBatch> prefetcher(
        [](std::int64_t i) -> HostBatch {
          if (i == 2) throw DataError("batch 2 is damaged");
          return {.micro_batch = i};
        },
        workers);
    EXPECT_EQ(prefetcher.next().micro_batch, 0);
    EXPECT_EQ(prefetcher.next().micro_batch, 1);
    EXPECT_EQ(test::message_of<DataError>([&] { prefetcher.next(); }), "batch 2 is damaged");
  }
}

TEST_F(GptBatchesTest, ReportBadSettings) {
  const auto open = [this] { (void)open_gpt_batches(data_, training_, ids_); };
  EXPECT_THAT(test::message_of<ConfigError>(open), HasSubstr("add --mock-data"));
  data_.data_path = {first_};
  data_.mock_data = true;
  EXPECT_THAT(test::message_of<ConfigError>(open), HasSubstr("exactly one of"));
  data_.mock_data = false;
  training_.train_iters = 10;
  data_.dataloader_type = "external";
  EXPECT_THAT(test::message_of<ConfigError>(open), HasSubstr("--dataloader-type"));
  data_.dataloader_type = "single";
  training_.seq_length = 1000000;
  EXPECT_THAT(test::message_of<DataError>(open), HasSubstr("must hold one sample of 1000001 tokens; got 54"));
  data_.data_path = {folder_ / "nothing"};
  EXPECT_THAT(test::message_of<DataError>(open), HasSubstr("no such file"));
}

TEST_F(GptBatchesTest, RejectTokensOutsideTheVocabulary) {
  data_.data_path = {first_};
  training_.train_iters = 10;
  const Splits splits = open_gpt_batches(data_, training_, {.vocab_size = 1000, .eod = 999});
  EXPECT_THAT(test::message_of<DataError>([&] { (void)splits[0]->get(0, 80); }),
              HasSubstr("must be 0 to 999"));
}

}  // namespace
}  // namespace colonnade::data
