// Index cache entries of others: of copies of the data, under other names, written concurrently.
#include "colonnade/data/index_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/base/md5.h"
#include "colonnade/data/blend.h"
#include "colonnade/data/samples/bert/bert_dataset.h"
#include "colonnade/data/samples/t5/t5_dataset.h"
#include "data/sentences.h"

namespace colonnade::data {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class IndexCacheTest : public ::testing::Test {
 protected:
  IndexCacheTest() { log::set_level(log::Level::kInfo); }

  /// Gets the entry of `key`, one array [value]. CacheKey::check accepts only `fitting`.
  std::int32_t get(CacheKey key, std::int32_t value, std::int32_t fitting) {
    key.check = [&](const std::vector<IntArray>& arrays) {
      ++checks_;
      if (arrays[0][0] != fitting) throw DataError("it does not fit");
    };
    const auto arrays = IndexCache(folder_ / "cache").get("x", key, {"a"}, [&] {
      ++builds_;
      return std::vector<IntArray>{IntArray(std::vector<std::int32_t>{value})};
    });
    return static_cast<std::int32_t>(arrays[0][0]);
  }

  /// Log output of `action`.
  template <typename Action>
  std::string logged(const Action& action) {
    testing::internal::CaptureStderr();
    action();
    return testing::internal::GetCapturedStderr();
  }

  /// Copies vectors to the paths where Megatron would write them; returns the stem of the file names.
  std::string place(const CacheKey& key,
                    const std::vector<std::pair<std::string, std::string>>& arrays) const {
    fs::create_directories(folder_ / "cache");
    const std::string stem = folder_ / ("cache/" + md5_hex(key.description) + "-" + key.kind);
    for (const auto& [name, vector] : arrays)
      fs::copy_file(test::vector_path(vector), stem + "-" + name + ".npy",
                    fs::copy_options::overwrite_existing);
    fs::remove(stem + "-colonnade.txt");
    write_file_atomically(stem + "-description.txt", key.description);
    return stem;
  }

  test::TempFolder folder_;
  std::atomic<int> builds_ = 0, checks_ = 0;
};

TEST_F(IndexCacheTest, NeverMixesArraysOfTwoBuilds) {
  log::set_level(log::Level::kError);
  const IndexCache cache(folder_ / "cache");
  const std::vector<std::string> names{"a", "b", "c"};
  std::vector<std::jthread> threads;
  for (int state = 0; state < 4; ++state)
    threads.emplace_back([&, value = state % 2] {
      const CacheKey key{.kind = "k", .description = "d", .fingerprint = std::to_string(value)};
      for (int i = 0; i < 60; ++i) {
        const auto arrays = cache.get("x", key, names, [&] {
          return std::vector<IntArray>(3, IntArray(std::vector<std::int32_t>{value}));
        });
        for (const IntArray& array : arrays) EXPECT_EQ(array[0], value);
      }
    });
  threads.clear();
  log::set_level(log::Level::kInfo);
}

/// Mock data have no cache; their indices take minutes for a long run.
TEST_F(IndexCacheTest, BuildsWithoutAFolderReportThatTheyRun) {
  const IndexCache cache({}, std::chrono::milliseconds(20));
  const std::string log = logged([&] {
    (void)cache.get("mock data", {}, {"a"}, [] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return std::vector<IntArray>{IntArray(std::vector<std::int32_t>{1})};
    });
  });
  EXPECT_THAT(log, HasSubstr("still indexing mock data, 0 s so far"));
}

/// Two hosts with copies of the data, with different write times, and a common cache folder.
TEST_F(IndexCacheTest, IsSharedByCopiesOfItsData) {
  const CacheKey one{.kind = "k", .description = "d", .fingerprint = "of one\n", .settings = "settings\n"};
  CacheKey two = one, three = one;
  two.fingerprint = "of two\n";
  three.settings = "other settings\n";
  EXPECT_EQ(get(one, 7, 7), 7);
  EXPECT_THAT(logged([&] { EXPECT_EQ(get(two, 8, 7), 7); }), HasSubstr("reused"));
  EXPECT_EQ(checks_, 1);
  for (const CacheKey& key : {one, two, one, two})
    EXPECT_EQ(logged([&] { EXPECT_EQ(get(key, 8, 7), 7); }), "");
  EXPECT_EQ(std::pair(checks_.load(), builds_.load()), std::pair(1, 1));
  // Other settings, and data that do not match.
  EXPECT_THAT(logged([&] { EXPECT_EQ(get(three, 7, 7), 7); }),
              AllOf(HasSubstr("the data changed since"), Not(HasSubstr("warning"))));
  EXPECT_EQ(std::pair(checks_.load(), builds_.load()), std::pair(1, 2));
  EXPECT_EQ(get(one, 9, 9), 9);
  EXPECT_EQ(get(two, 10, 10), 10);
  EXPECT_EQ(std::pair(checks_.load(), builds_.load()), std::pair(2, 4));
}

/// Two projects with equal relative paths and a common cache folder.
TEST_F(IndexCacheTest, WarnsOfAnEntryOfAnotherFile) {
  const CacheKey one{
      .kind = "k", .description = "d", .fingerprint = "/a/x y.idx 40 bytes, changed 5\n", .settings = "s\n"};
  CacheKey two = one, later = one;
  two.fingerprint = "/b/x y.idx 48 bytes, changed 6\n";
  later.fingerprint = "/a/x y.idx 48 bytes, changed 9\n";
  EXPECT_EQ(get(one, 7, 7), 7);
  EXPECT_THAT(logged([&] { EXPECT_EQ(get(later, 8, 8), 8); }), HasSubstr("the data changed since"));
  EXPECT_THAT(logged([&] { EXPECT_EQ(get(two, 9, 9), 9); }),
              AllOf(HasSubstr("built from /a/x y.idx and will be rebuilt"),
                    HasSubstr("give each its own --data-cache-path"), Not(HasSubstr("data changed"))));
}

TEST_F(IndexCacheTest, StoresTheFingerprintsOfManyCopies) {
  CacheKey key{.kind = "k", .description = "d", .settings = "settings\n"};
  constexpr int kCopies = 100;
  for (const bool first : {true, false})
    for (int copy = 0; copy < kCopies; ++copy) {
      key.fingerprint = fmt::format("of {}\n", copy);
      EXPECT_EQ(logged([&] { EXPECT_EQ(get(key, 7, 7), 7); }).empty(), !first) << copy;
    }
  EXPECT_EQ(std::pair(checks_.load(), builds_.load()), std::pair(kCopies - 1, 1));
}

/// Paths as given to a run, and as given to another program in another folder.
TEST_F(IndexCacheTest, FindsOtherSpellingsWithoutALockAndBeforeAnOutdatedEntry) {
  const auto spelled = [](const std::string& path, const std::string& fingerprint) {
    return CacheKey{.kind = "k",
                    .description = fmt::format(R"({{"class": "X", "dataset_path": "{}"}})", path),
                    .fingerprint = fingerprint,
                    .settings = "settings\n"};
  };
  const auto stem = [&](const CacheKey& key) {
    return folder_ / ("cache/" + md5_hex(key.description) + "-k");
  };
  const CacheKey given = spelled("data/x", "now\n"), absolute = spelled("/home/data/x", "now\n"),
                 old = spelled("/home/data/x", "before\n");
  EXPECT_EQ(get(given, 7, 7), 7);
  fs::create_directory(stem(absolute) + ".lock");  // which cannot be locked
  EXPECT_EQ(logged([&] { EXPECT_EQ(get(absolute, 8, 7), 7); }), "");
  fs::remove(stem(absolute) + ".lock");
  EXPECT_EQ(get(old, 6, 6), 6);  // checked, then built: no spelling has this fingerprint
  EXPECT_EQ(builds_, 2);
  EXPECT_EQ(logged([&] { EXPECT_EQ(get(absolute, 8, 7), 7); }), "");
  EXPECT_EQ(get(spelled("/home/data/y", "of another\n"), 5, 5), 5);
  EXPECT_EQ(builds_, 3);
  // Without a fingerprint nothing identifies the data.
  CacheKey anonymous = spelled("/home/data/z", "");
  anonymous.settings = "";
  EXPECT_EQ(get(anonymous, 4, 4), 4);
  anonymous.description = spelled("z", "").description;
  EXPECT_EQ(get(anonymous, 3, 3), 3);
}

TEST_F(IndexCacheTest, IsValidatedOnceByManyAndReadWithoutALock) {
  const CacheKey key{.kind = "k", .description = "d", .fingerprint = "s"};
  (void)get(key, 7, 7);
  const std::string stem = folder_ / ("cache/" + md5_hex("d") + "-k");
  fs::remove(stem + "-colonnade.txt");
  {
    std::vector<std::jthread> threads(4);
    for (std::jthread& thread : threads) thread = std::jthread([&] { EXPECT_EQ(get(key, 8, 7), 7); });
  }
  EXPECT_EQ(std::pair(checks_.load(), builds_.load()), std::pair(1, 1));
  fs::remove(stem + "-colonnade.txt");
  fs::create_directory(stem + ".lock");  // which cannot be locked
  EXPECT_THAT(logged([&] { EXPECT_EQ(get(key, 8, 7), 7); }),
              AllOf(HasSubstr("reused"), Not(HasSubstr("must be writable"))));
  EXPECT_FALSE(fs::exists(stem + "-colonnade.txt"));
  fs::remove(stem + ".lock");
  const std::string lines = logged([&] { EXPECT_EQ(get(key, 8, 8), 8); });
  EXPECT_EQ(lines.find("rebuilt"), lines.rfind("rebuilt")) << lines;
  EXPECT_EQ(std::pair(checks_.load(), builds_.load()), std::pair(3, 2));
}

TEST_F(IndexCacheTest, ReusesMegatronsSentenceIndexIfItMatches) {
  const auto source = std::make_shared<IndexedDataset>(test::vector_path("indexed/bert_uint16"));
  const CacheKey key{.kind = "k", .description = "d"};
  const SentencePlan part{.documents = range_of(*parse_split("90,10,0")[0], source->num_documents()),
                          .num_samples = 400};
  const T5Plan t5 = megatrons_t5_plan(*source);
  BertPlan bert{.length = 64,
                .sentence_order = true,
                .sentences = part,
                .ids = {.words = 1000, .cls = 2, .sep = 3, .mask = 4}};
  bert.sentences.max_length = 61;
  bert.sentences.seed = 2024;
  bert.sentences.min_sentences = 2;
  const auto open_t5 = [&] { (void)T5Dataset(source, t5, IndexCache(folder_ / "cache"), key); };
  const auto open_bert = [&] { (void)BertDataset(source, bert, IndexCache(folder_ / "cache"), key); };
  const std::string of_t5 = "indexed/masked/t5_span.sample_index.npy",
                    of_bert = "indexed/masked/bert_span.sample_index.npy";
  const auto expect = [&](const auto& open, const std::string& placed, const std::string& kept,
                          const char* line) {
    const std::string stem = place(key, {{"sample_index", placed}});
    EXPECT_THAT(logged(open), HasSubstr(line)) << placed;
    EXPECT_EQ(read_file(stem + "-sample_index.npy"), read_file(test::vector_path(kept)));
    EXPECT_EQ(logged(open), "");
  };
  expect(open_t5, of_t5, of_t5, "reused");
  expect(open_t5, of_bert, of_t5, "rebuilt");
  expect(open_bert, of_bert, of_bert, "reused");
  expect(open_bert, of_t5, of_bert, "rebuilt");
  // One wrong row, within all bounds.
  const std::string stem = place(key, {{"sample_index", of_bert}});
  std::string bytes = read_file(stem + "-sample_index.npy");
  ++bytes[bytes.size() - 12];
  write_file_atomically(stem + "-sample_index.npy", bytes);
  EXPECT_THAT(logged(open_bert), HasSubstr("rebuilt"));
  EXPECT_EQ(read_file(stem + "-sample_index.npy"), read_file(test::vector_path(of_bert)));
}

TEST_F(IndexCacheTest, ReusesMegatronsBlendIndexIfItMatches) {
  const CacheKey key{.kind = "k", .description = "d"};
  const std::vector<double> weights{0.3, 0.7};
  const auto open = [&] { (void)blend_by_weight(weights, 700, IndexCache(folder_ / "cache"), key); };
  const BlendIndex built = blend_by_weight(weights, 700);
  const auto put = [&](std::int64_t step) {
    const std::string stem = place(key, {});
    built.dataset.save(stem + "-dataset_index.npy");
    std::vector<std::int64_t> samples;
    for (std::int64_t i = 0; i < built.sample.rows(); ++i) samples.push_back(built.sample[i]);
    samples[100] += step;
    IntArray(samples).save(stem + "-dataset_sample_index.npy");
  };
  put(0);
  EXPECT_THAT(logged(open), HasSubstr("reused"));
  EXPECT_EQ(logged(open), "");
  put(1);
  EXPECT_THAT(logged(open), HasSubstr("rebuilt"));
  EXPECT_EQ(logged(open), "");
}

}  // namespace
}  // namespace colonnade::data
