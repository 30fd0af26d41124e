// Document, sample, shuffle and blend indices, and the samples themselves, against Megatron Core's.
#include "colonnade/data/samples/gpt/gpt_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <fstream>
#include <thread>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/base/progress.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "colonnade/data/samples/gpt/gpt_dataset.h"
#include "colonnade/data/samples/gpt/gpt_sample.h"
#include "support/files.h"

namespace colonnade::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Ints = std::vector<std::int64_t>;

/// Sequences of given lengths; token ids encode sequence and offset.
class Counting final : public TokenSource {
 public:
  explicit Counting(Ints lengths) : lengths_(std::move(lengths)) {}
  [[nodiscard]] std::int64_t num_sequences() const override {
    return static_cast<std::int64_t>(lengths_.size());
  }
  [[nodiscard]] std::int64_t length(std::int64_t i) const override {
    return lengths_[static_cast<std::size_t>(i)];
  }
  void tokens(std::int64_t sequence, std::int64_t offset, std::span<std::int64_t> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = 100 * sequence + offset + static_cast<std::int64_t>(i);
  }
  [[nodiscard]] std::string name() const override { return "counting"; }

 private:
  Ints lengths_;
};

Ints values(const IntArray& array) {
  Ints result;
  for (std::int64_t i = 0; i < array.size(); ++i) result.push_back(array[i]);
  return result;
}

void expect_equal(const IntArray& got, const std::string& name) {
  const IntArray expected = IntArray::map(test::vector_path("indexed/gpt/" + name + ".npy"));
  EXPECT_EQ(got.type(), expected.type()) << name;
  EXPECT_EQ(got.rows(), expected.rows()) << name;
  EXPECT_EQ(got.cols(), expected.cols()) << name;
  ASSERT_EQ(got.bytes().size(), expected.bytes().size()) << name;
  EXPECT_EQ(std::memcmp(got.bytes().data(), expected.bytes().data(), got.bytes().size()), 0) << name;
}

TEST(GptIndex, MatchesMegatronsForASmallExample) {
  const Counting source({3, 5, 2, 7, 4});
  // 9 samples need 37 tokens: two epochs of 21; 4 of at most 5 samples come from the last one.
  GptIndexPlan plan{.sequences = {0, 5}, .sequence_length = 4, .num_samples = 9, .seed = 1234};
  const GptIndex index = build_gpt_index(source, plan);
  EXPECT_EQ(values(index.document), (Ints{2, 2, 4, 1, 0, 3, 4, 0, 1, 3}));
  const Ints rows{0, 0, 2, 0, 3, 0, 3, 4, 5, 0, 5, 4, 6, 1, 7, 1, 8, 2, 9, 1, 9, 5};
  EXPECT_EQ(values(index.sample), rows);
  plan.drop_last_partial = false;
  Ints with_partial = rows;
  with_partial.insert(with_partial.end(), {9, 6});
  EXPECT_EQ(values(build_gpt_index(source, plan).sample), with_partial);
}

struct Case {
  std::string name;
  std::uint32_t seed;
  std::int64_t sequence_length;
  const char* split;
  std::array<std::optional<std::int64_t>, 3> sizes;
  SampleRules rules;
  bool extra = true;
  bool drop_partial_valid = true;
};

constexpr std::int64_t kEod = 1024;  // <|endoftext|> of the vectors' gpt2_bpe

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases{{"A", 1234, 64, "969,30,1", {1966, 60, 12}, {.eod = kEod}},
                                        {"B",
                                         42,
                                         48,
                                         "90,8,2",
                                         {2059, 60, 12},
                                         {.eod = kEod, .reset_position_ids = true, .eod_mask_loss = true},
                                         true,
                                         false},
                                        {"C",
                                         5,
                                         32,
                                         "1,0,0",
                                         {std::nullopt, std::nullopt, std::nullopt},
                                         {.eod = kEod, .eod_mask_loss = true},
                                         false}};
  return kCases;
}

GptIndexPlan plan_of(const Case& c, std::size_t split, const TokenSource& source) {
  return {.sequences = range_of(*parse_split(c.split)[split], source.num_sequences()),
          .sequence_length = c.sequence_length,
          .num_samples = c.sizes[split],
          .seed = c.seed,
          .add_extra_token = c.extra,
          .drop_last_partial = split != 1 || c.drop_partial_valid};
}

TEST(GptIndex, MatchesMegatronsForEverySplit) {
  const IndexedDataset source(test::vector_path("indexed/gpt_uint16"));
  for (const Case& c : cases()) {
    for (std::size_t split = 0; split < 3; ++split) {
      if (!parse_split(c.split)[split]) continue;
      const GptIndex index = build_gpt_index(source, plan_of(c, split, source));
      const std::string name = c.name + "_" + kSplitNames[split];
      expect_equal(index.document, name + ".document_index");
      expect_equal(index.sample, name + ".sample_index");
      expect_equal(index.shuffle, name + ".shuffle_index");
    }
  }
}

TEST(GptIndex, CountsEpochsLikeMegatron) {
  const IndexedDataset source(test::vector_path("indexed/gpt_uint16"));
  const GptEpochs a = count_epochs(source, plan_of(cases()[0], 0, source));
  EXPECT_EQ(a.epochs, 3);
  EXPECT_EQ(a.tokens_per_epoch, 54712);
  EXPECT_TRUE(a.separate_final_epoch);
  const GptEpochs b = count_epochs(source, plan_of(cases()[1], 0, source));
  EXPECT_EQ(b.epochs, 2);
  EXPECT_FALSE(b.separate_final_epoch);
}

/// mask [s, s], 1 where query row must not attend to key column: later columns and other documents.
std::vector<std::uint8_t> mask_of(const Ints& tokens) {
  const auto s = static_cast<std::int64_t>(tokens.size());
  Ints bounds;
  add_document_starts(tokens, kEod, 0, bounds);
  bounds.push_back(s);
  std::vector<std::uint8_t> mask(tokens.size() * tokens.size(), 1);
  for (std::size_t i = 1; i < bounds.size(); ++i)
    for (std::int64_t row = bounds[i - 1]; row < bounds[i]; ++row)
      for (std::int64_t column = bounds[i - 1]; column <= row; ++column)
        mask[static_cast<std::size_t>(row * s + column)] = 0;
  return mask;
}

TEST(GptDataset, MatchesMegatronsSamples) {
  const auto source = std::make_shared<IndexedDataset>(test::vector_path("indexed/gpt_uint16"));
  for (const Case& c : cases()) {
    for (std::size_t split = 0; split < 3; ++split) {
      if (!parse_split(c.split)[split]) continue;
      const GptDataset dataset(source, plan_of(c, split, *source), IndexCache({}), {});
      const auto expected =
          test::read_tensors(fmt::format("indexed/gpt/{}_{}.first.safetensors", c.name, kSplitNames[split]));
      const auto s = static_cast<std::size_t>(c.sequence_length);
      const std::size_t count = expected.at("tokens").size() / s;
      Ints text(s + (c.extra ? 1 : 0)), tokens(s), labels(s), positions(s);
      std::vector<float> loss_mask(s);
      for (std::size_t i = 0; i < count; ++i) {
        dataset.tokens(static_cast<std::int64_t>(i), c.rules.pad, text);
        fill_sample(text, c.rules, {tokens, labels, positions, loss_mask});
        const auto same = [&](const char* key, const auto& got) {
          EXPECT_TRUE(std::equal(got.begin(), got.end(),
                                 expected.at(key).begin() + static_cast<std::ptrdiff_t>(i * got.size())))
              << key << " of sample " << i << " of " << c.name << " " << kSplitNames[split];
        };
        same("tokens", tokens);
        same("labels", labels);
        same("position_ids", positions);
        same("loss_mask", loss_mask);
        const bool masked = std::ranges::count(loss_mask, 0.0F) > 0;
        EXPECT_EQ(!c.extra || has_masked_loss(text, c.rules), masked);
        if (!c.rules.reset_position_ids || i >= 6) continue;
        same("attention_mask", mask_of(tokens));
      }
    }
  }
}

TEST(Blend, MatchesMegatronsOrder) {
  const BlendIndex small = blend_by_weight(std::vector<double>{.5, .3, .2}, 10);
  EXPECT_EQ(values(small.dataset), (Ints{0, 1, 2, 0, 1, 0, 2, 0, 1, 0}));
  EXPECT_EQ(values(small.sample), (Ints{0, 0, 0, 1, 1, 2, 1, 3, 2, 4}));
  const BlendIndex exhaustive = blend_exhaustively(Ints{5, 3, 1});
  EXPECT_EQ(values(exhaustive.dataset), (Ints{0, 1, 2, 0, 1, 0, 0, 1, 0}));
  EXPECT_EQ(values(exhaustive.sample), (Ints{0, 0, 0, 1, 1, 2, 3, 2, 4}));
  const BlendIndex seven = blend_by_weight(
      std::vector<double>{0.20473999521322156, 0.48343509315613514, 4.3399157688909066e-05,
                          0.13659787314362556, 0.060218402983735944, 0.03676017205332058, 0.0782050642922724},
      2000);
  expect_equal(seven.dataset, "raw_7way.dataset_index");
  expect_equal(seven.sample, "raw_7way.dataset_sample_index");
  const BlendIndex four = blend_exhaustively(Ints{13, 1, 40, 7});
  expect_equal(four.dataset, "raw_4exhaustive.dataset_index");
  expect_equal(four.sample, "raw_4exhaustive.dataset_sample_index");
}

/// The documented rule for any number of data sets, also with equal weights.
TEST(Blend, DrawsFromTheDatasetWithTheLargestDeficit) {
  for (const std::size_t sets : {1U, 2U, 3U, 4U, 5U, 8U, 9U, 16U, 33U}) {
    std::vector<double> weights(sets);
    double sum = 0;
    for (std::size_t i = 0; i < sets; ++i) sum += weights[i] = static_cast<double>(1 + i * i % 7);
    for (double& weight : weights) weight /= sum;
    const BlendIndex index = blend_by_weight(weights, 3000);
    std::vector<std::int64_t> drawn(sets, 0);
    for (std::int64_t t = 0; t < 3000; ++t) {
      std::size_t best = 0;
      const auto deficit = [&](std::size_t i) {
        return weights[i] * std::max(static_cast<double>(t), 1.0) - static_cast<double>(drawn[i]);
      };
      for (std::size_t i = 1; i < sets; ++i)
        if (deficit(i) > deficit(best)) best = i;
      ASSERT_EQ(index.dataset[t], static_cast<std::int64_t>(best)) << sets << " sets, step " << t;
      ASSERT_EQ(index.sample[t], drawn[best]++) << sets << " sets, step " << t;
    }
  }
}

TEST(Blend, ParsesWeightsOrPrefixes) {
  const Blend weighted = parse_blend(std::vector<std::string>{"30", "a", "12.5", "b"});
  EXPECT_EQ(weighted.prefixes, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(weighted.weights, (std::vector<double>{0.7058823529411765, 0.29411764705882354}));
  EXPECT_EQ(samples_per_dataset(weighted.weights, 333, 0.0), (Ints{236, 98}));
  EXPECT_EQ(samples_per_dataset(weighted.weights, 333, 0.005), (Ints{238, 99}));
  const Blend plain = parse_blend(std::vector<std::string>{"a", "b"});
  EXPECT_EQ(plain.prefixes.size(), 2U);
  EXPECT_TRUE(plain.weights.empty());
  EXPECT_THROW(parse_blend(std::vector<std::string>{"0", "a", "1", "b"}), ConfigError);
  EXPECT_THROW(parse_blend(std::vector<std::string>{"inf", "a"}), ConfigError);
  EXPECT_THAT(test::message_of<ConfigError>([] {
                (void)parse_blend(std::vector<std::string>{"0.3", "a", "b"});
              }),
              HasSubstr("in pairs; got the number 0.3 among 3 words"));
  EXPECT_THROW(parse_blend(std::vector<std::string>{"a", "0.3"}), ConfigError);
}

TEST(GptIndex, RejectsMoreSamplesThanMemoryHoldsBeforeAllocating) {
  const Counting source(Ints(100, 50));
  const GptIndexPlan plan{.sequences = {0, 100}, .sequence_length = 64, .num_samples = std::int64_t{1} << 42};
  EXPECT_THAT(test::message_of<ConfigError>([&] { (void)build_gpt_index(source, plan); }),
              AllOf(HasSubstr("counting: "), HasSubstr("got 4398046511"), HasSubstr("GB; request fewer")));
}

TEST(Split, ParsesMegatronsSplitStrings) {
  const SplitFractions usual = parse_split("969, 30, 1");
  EXPECT_DOUBLE_EQ(usual[0]->end, 0.969);
  EXPECT_DOUBLE_EQ(usual[1]->end, 0.999);
  EXPECT_DOUBLE_EQ(usual[2]->end, 1.0);
  const SplitFractions quoted = parse_split("'99,1,0'");
  EXPECT_DOUBLE_EQ(quoted[1]->begin, 0.99);
  EXPECT_FALSE(quoted[2]);
  EXPECT_FALSE(parse_split("1")[1]);
  for (const char* wrong : {"", "0,0,0", "1,1,1,1", "1.2.3", "-1,2", "1,2,x", "abc", "inf", "nan,1"})
    EXPECT_THROW(parse_split(wrong), ConfigError) << wrong;
  EXPECT_EQ(range_of({0, 0.5}, 5).end, 2);  // 2.5 is rounded to even
  EXPECT_EQ(range_of({0, 0.5}, 7).end, 4);
}

TEST(IndexCache, IsBuiltOnceByTheFirstThread) {
  log::set_level(log::Level::kError);
  const test::TempFolder folder;
  std::atomic<int> builds = 0;
  const auto build = [&builds] {
    ++builds;
    return std::vector<IntArray>{IntArray(std::vector<std::int32_t>{1, 2, 3}),
                                 IntArray(std::vector<std::int64_t>{4, 5, 6, 7}, 2)};
  };
  const IndexCache cache(folder / "cache");
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&] {
        EXPECT_EQ(values(cache.get("x", {.kind = "k", .description = "key"}, {"a", "b"}, build)[1]),
                  (Ints{4, 5, 6, 7}));
      });
  }
  EXPECT_EQ(builds, 1);
  EXPECT_EQ(values(cache.get("x", {.kind = "k", .description = "other key"}, {"a", "b"}, build)[0]),
            (Ints{1, 2, 3}));
  EXPECT_EQ(builds, 2);
  // A damaged entry is detected and rebuilt.
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder / "cache"))
    if (file.path().filename().string().ends_with("-b.npy")) std::filesystem::resize_file(file.path(), 130);
  EXPECT_EQ(values(cache.get("x", {.kind = "k", .description = "key"}, {"a", "b"}, build)[1]),
            (Ints{4, 5, 6, 7}));
  EXPECT_EQ(builds, 3);
  EXPECT_EQ(values(cache.get("x", {.kind = "k", .description = "key"}, {"a", "b"}, build)[1]),
            (Ints{4, 5, 6, 7}));
  EXPECT_EQ(builds, 3);
  log::set_level(log::Level::kInfo);
}

/// The builder streams arrays that exceed the memory to disk.
TEST(IndexCache, KeepsStreamedArrays) {
  const test::TempFolder folder;
  const IndexCache cache(folder / "cache");
  const auto build = [](const std::filesystem::path& staged) {
    IntWriter writer(staged / "a.npy", IntType::kInt64);
    for (std::int64_t part = 0; part < 3; ++part)
      writer.append(std::span<const std::int64_t>(std::vector<std::int64_t>{part, 10 * part}));
    writer.close();
    EXPECT_EQ(writer.size(), 6);
    return std::vector<IntArray>{IntArray::map(staged / "a.npy"), IntArray(std::vector<std::int32_t>{7})};
  };
  for (int time = 0; time < 2; ++time) {
    const auto arrays = cache.get_streamed("x", {.kind = "k", .description = "d"}, {"a", "b"}, build);
    ASSERT_EQ(arrays[0].rows(), 6);
    EXPECT_EQ(arrays[0][5], 20);
    EXPECT_EQ(arrays[1][0], 7);
  }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "cache"))
    EXPECT_EQ(entry.path().string().find(".part"), std::string::npos) << entry.path();
  const auto failing = [](const std::filesystem::path& staged) -> std::vector<IntArray> {
    IntWriter writer(staged / "a.npy", IntType::kInt64);
    throw DataError("x");
  };
  EXPECT_THROW((void)cache.get_streamed("x", {.kind = "k", .description = "e"}, {"a"}, failing), DataError);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "cache"), {}), 4)
      << "the staging folder is removed";
}

TEST(IndexCache, BuildsRemoveTheRemainsOfKilledOnes) {
  namespace fs = std::filesystem;
  const test::TempFolder folder;
  const IndexCache cache(folder / "cache");
  const auto get = [&] {
    return cache.get("x", {.kind = "k", .description = "key"}, {"a"}, [] {
      return std::vector<IntArray>{IntArray(std::vector<std::int32_t>{1, 2, 3})};
    });
  };
  const pid_t child = ::fork();
  if (child == 0) {
    (void)cache.get_streamed("x", {.kind = "k", .description = "key"}, {"a"},
                             [](const fs::path& staged) -> std::vector<IntArray> {
                               IntWriter(staged / "a.npy", IntType::kInt64).close();
                               std::_Exit(0);  // without destructors, like SIGKILL
                             });
    std::_Exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  const auto left = [&] {
    std::vector<std::string> names;
    for (const auto& each : fs::directory_iterator(folder / "cache"))
      if (const auto name = each.path().filename().string(); name.find(".part-") != std::string::npos)
        names.push_back(name);
    return names;
  };
  ASSERT_EQ(left().size(), 1U);
  const std::string entry = left()[0].substr(0, left()[0].find(".part-"));
  const fs::path idle = folder / ("cache/" + entry + ".part-elsewhere-1"),
                 busy = folder / ("cache/" + entry + ".part-elsewhere-2"),
                 other = folder / "cache/0.part-x-1";
  for (const fs::path& path : {idle, busy, other}) fs::create_directories(path);
  fs::last_write_time(idle, fs::file_time_type::clock::now() - std::chrono::hours(2));
  EXPECT_EQ(values(get()[0]), (Ints{1, 2, 3}));
  EXPECT_THAT(left(), testing::UnorderedElementsAre(busy.filename().string(), other.filename().string()));
}

TEST(IndexCache, AFullDiskStopsABuildWithAFix) {
  const test::TempFolder folder;
  const IndexCache cache(folder / "cache");
  const auto build = [](const std::filesystem::path& staged) -> std::vector<IntArray> {
    IntWriter writer(staged / "a.npy", IntType::kInt64);
    writer.append(std::span<const std::int64_t>(std::vector<std::int64_t>(100'000)));
    writer.close();
    return {IntArray::map(staged / "a.npy")};
  };
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit tight{65'536, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ::setrlimit(RLIMIT_FSIZE, &tight);
  const std::string message = test::message_of<Error>(
      [&] { (void)cache.get_streamed("x", {.kind = "k", .description = "d"}, {"a"}, build); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  (void)std::signal(SIGXFSZ, handler);
  EXPECT_THAT(message, AllOf(HasSubstr("a.npy must be writable"), HasSubstr("(--data-cache-path)")));
  EXPECT_TRUE(std::filesystem::is_empty(folder / "cache"));
}

TEST(IndexCache, OneThreadAtATimeHoldsTheLock) {
  log::set_level(log::Level::kError);
  const test::TempFolder folder;
  const IndexCache cache(folder / "cache");
  std::atomic<int> inside = 0, most = 0;
  // Every build fails, so that all threads take the lock repeatedly.
  const auto build = [&]() -> std::vector<IntArray> {
    most = std::max<int>(most, ++inside);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --inside;
    throw DataError("nothing to index");
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        for (int k = 0; k < 40; ++k)
          EXPECT_THROW((void)cache.get("x", {.kind = "k", .description = "key"}, {"a"}, build), DataError);
      });
  }
  EXPECT_EQ(most, 1);
  log::set_level(log::Level::kInfo);
}

TEST(IndexCache, BuildersAndWaitersSendHeartbeats) {
  const test::TempFolder folder;
  const IndexCache cache(folder / "cache", std::chrono::milliseconds(100));
  Progress builder, waiter;
  std::atomic<bool> building = false;
  std::int64_t built_at = 0, built_until = 0;
  testing::internal::CaptureStderr();
  {
    const std::jthread first([&] {
      const ProgressScope scope(builder);
      (void)cache.get("x", {.kind = "k", .description = "key"}, {"a"}, [&] {
        building = true;
        built_at = monotonic_ns();
        std::this_thread::sleep_for(std::chrono::milliseconds(350));
        built_until = monotonic_ns();
        return std::vector<IntArray>{IntArray(std::vector<std::int32_t>{1})};
      });
    });
    const std::jthread second([&] {
      const ProgressScope scope(waiter);
      while (!building) std::this_thread::yield();
      (void)cache.get("x", {.kind = "k", .description = "key"}, {"a"},
                      [] { return std::vector<IntArray>{}; });
    });
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, AllOf(HasSubstr("indexing x\n"), HasSubstr("still indexing x, "),
                          HasSubstr("waiting for another process that indexes x")));
  constexpr std::int64_t kLate =
      200'000'000;  // maximum age in ns of the last heartbeat at the end of the build
  for (const Progress* page : {&builder, &waiter}) {
    EXPECT_GT(page->read().heartbeat_ns, built_at);
    EXPECT_GT(page->read().heartbeat_ns, built_until - kLate);
  }
}

TEST(IndexCache, OfOtherDataIsRejected) {
  const test::TempFolder folder;
  const GptIndexPlan plan{.sequences = {0, 3}, .sequence_length = 4, .num_samples = 5};
  const IndexCache cache(folder / "cache");
  log::set_level(log::Level::kError);
  const GptDataset good(std::make_shared<Counting>(Ints{9, 9, 9}), plan, cache,
                        {.kind = "k", .description = "same"});
  const GptDataset bad(std::make_shared<Counting>(Ints{2, 2, 2}), plan, cache,
                       {.kind = "k", .description = "same"});
  Ints text(5);
  EXPECT_NO_THROW(good.tokens(0, -1, text));
  EXPECT_THAT(test::message_of<DataError>([&] {
                for (std::int64_t i = 0; i < bad.size(); ++i) bad.tokens(i, -1, text);
              }),
              HasSubstr("delete the cache"));
  log::set_level(log::Level::kInfo);
}

TEST(IntArray, ReadsBackSavedFilesAndRejectsDamage) {
  const test::TempFolder folder;
  const IntArray array(std::vector<std::uint32_t>{1, 0xffffffffU, 3, 4, 5, 6}, 2);
  array.save(folder / "a.npy");
  EXPECT_EQ(values(IntArray::map(folder / "a.npy")), (Ints{1, 0xffffffff, 3, 4, 5, 6}));
  const std::string whole = read_file(folder / "a.npy");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    std::ofstream(folder / "b.npy", std::ios::binary) << whole.substr(0, size);
    EXPECT_THROW(IntArray::map(folder / "b.npy"), DataError) << size;
  }
}

}  // namespace
}  // namespace colonnade::data
