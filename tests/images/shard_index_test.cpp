// The index of samples: grouping by key, exclusions, truncated shards, the cache.
#include "colonnade/images/shard_index.h"

#include <gmock/gmock.h>

#include "colonnade/base/error.h"
#include "images/image_vectors.h"

namespace colonnade::images {
namespace {

using testing::HasSubstr;
using Pair = std::pair<std::string_view, std::string_view>;

TEST(SplitName, SplitsAtTheFirstDotOfTheFileName) {
  EXPECT_EQ(split_name("a.b/key.seg.png"), Pair("a.b/key", "seg.png"));
  EXPECT_EQ(split_name("key.jpg"), Pair("key", "jpg"));
  EXPECT_EQ(split_name("key."), Pair("key", ""));
  for (const char* none : {"", "key", "a.b/key", ".hidden", "a/._key.jpg", "__meta__/a.txt", "__x__",
                           "__a.b__/c.d", "__x__/a/b.txt"})
    EXPECT_EQ(split_name(none), Pair()) << none;
  EXPECT_EQ(split_name("__x.txt"), Pair("__x", "txt"));
  EXPECT_EQ(split_name("__x__.txt"), Pair("__x__", "txt"));
  EXPECT_EQ(split_name("a/__x__/b.txt"), Pair("a/__x__/b", "txt"));
  EXPECT_EQ(split_name("____/b.txt"), Pair("____/b", "txt"));
}

class ShardIndexTest : public testing::Test {
 protected:
  void SetUp() override {
    first_ = tar_member("k1.jpg", "J") + tar_member("k1.txt", "one") + tar_member("README", "") +
             tar_member("k2.jpg", std::string(700, 'x')) + tar_member("k2.txt", "two") + tar_end();
    write(folder_ / "0.tar", first_);
    write(folder_ / "1.tar", tar_member("d/", "", '5') + tar_member("d/k3.txt", "three") + tar_end());
  }
  ShardSet set() { return find_shards({folder_ / ""}, "train"); }
  ShardIndex index(OnError on_error = OnError::kStop, const std::string& cache = "") {
    return index(set(), on_error, cache);
  }
  ShardIndex index(const ShardSet& set, OnError on_error, const std::string& cache) {
    return index_shards(set, ShardFiles(set.root, set.names), on_error, 3, data::IndexCache(cache));
  }
  test::TempFolder folder_;
  std::string first_;
};

TEST_F(ShardIndexTest, GroupsFilesByKey) {
  const ShardIndex found = index();
  ASSERT_EQ(found.size(), 3);
  EXPECT_EQ(found.position(0).offset, 0);
  EXPECT_EQ(found.position(0).size, 2048);
  EXPECT_EQ(found.position(1).offset, 2560);  // after README
  EXPECT_EQ(found.position(1).size, 1536 + 1024);
  EXPECT_EQ(found.position(2).shard, 1);
  EXPECT_EQ(found.position(2).offset, 512);
  EXPECT_EQ(found.unused[0], 1);
}

TEST_F(ShardIndexTest, OmitsExcludedSamplesAndChecksCounts) {
  ShardSet shards = set();
  shards.excluded = {"0.tar/k1"};
  shards.counts = {2, 1};
  EXPECT_EQ(index(shards, OnError::kStop, "").size(), 2);
  shards.counts = {3, 1};
  EXPECT_THAT(test::message_of<DataError>([&] { (void)index(shards, OnError::kStop, ""); }),
              HasSubstr("0.tar must hold as many samples as .nv-meta lists, 3; got 2"));
}

/// Wherever a shard is truncated: stop reports it, skip keeps the samples that are followed by another one.
TEST_F(ShardIndexTest, KeepsCompleteSamplesOfTruncatedShard) {
  for (std::size_t size = 0; size <= 5120; size += 256) {
    write(folder_ / "0.tar", first_.substr(0, size));
    EXPECT_THAT(test::message_of<DataError>([&] { (void)index(); }), HasSubstr("0.tar: a ")) << size;
    const ShardIndex found = index(OnError::kSkip);
    ASSERT_EQ(found.broken.rows(), 1);
    EXPECT_EQ(found.broken[0], 0);
    const std::int64_t complete = size < 3772 ? 0 : 1;
    EXPECT_EQ(found.size(), 1 + complete) << size;
    EXPECT_LE(found.broken[1], static_cast<std::int64_t>(size));
  }
}

TEST_F(ShardIndexTest, IsBuiltOnceAndRebuiltWhenAShardChanges) {
  EXPECT_EQ(index(OnError::kStop, folder_ / "cache").size(), 3);
  const std::size_t files = folder_.num_files();
  EXPECT_EQ(index(OnError::kStop, folder_ / "cache").size(), 3);
  EXPECT_EQ(folder_.num_files(), files);
  write(folder_ / "1.tar", tar_member("k3.txt", "") + tar_member("k4.txt", "") + tar_end());
  EXPECT_EQ(index(OnError::kStop, folder_ / "cache").size(), 4);
}

/// tar writes the second of two hard links as a link.
TEST_F(ShardIndexTest, CountsLinks) {
  write(folder_ / "1.tar", tar_member("a.jpg", "J") + tar_member("a.txt", "t") +
                               tar_member("b.jpg", "", '1') + tar_member("b.txt", "t") +
                               tar_member("c.jpg", "", '2') + tar_member("c.txt", "", '2') +
                               tar_member("d", "", '5') + tar_end());
  const ShardIndex found = index(OnError::kStop, folder_ / "cache");
  EXPECT_EQ(found.size(), 4);
  EXPECT_EQ(found.unused[1], 3);
  EXPECT_EQ(index(OnError::kStop, folder_ / "cache").unused[1], 3);
}

TEST_F(ShardIndexTest, RequiresASample) {
  for (const char* name : {"0.tar", "1.tar"}) write(folder_ / name, tar_member("README", "") + tar_end());
  EXPECT_THAT(test::message_of<DataError>([&] { (void)index(); }),
              HasSubstr("got none in 2 shards, of 2 files and 0 links; check"));
  for (const char* name : {"0.tar", "1.tar"}) write(folder_ / name, "no tar");
  EXPECT_THAT(test::message_of<DataError>([&] { (void)index(OnError::kSkip); }),
              HasSubstr("0 links, and 2 are truncated or damaged; check how they were created"));
}

TEST_F(ShardIndexTest, ReadsMoreShardsThanOpenFiles) {
  std::vector<std::string> names;
  for (int i = 0; i < 300; ++i) {
    names.push_back(fmt::format("many/{:03}.tar", i));
    write(folder_ / names.back(), tar_member("k.txt", fmt::to_string(i)) + tar_end());
  }
  const ShardFiles files(folder_ / "", names);
  for (std::int64_t i = 299; i >= 0; --i) {
    std::string text(3, '\0');
    EXPECT_EQ(files.read(i, 512, text), 3U);
    EXPECT_EQ(std::stoll(text), i);
  }
}

}  // namespace
}  // namespace colonnade::images
