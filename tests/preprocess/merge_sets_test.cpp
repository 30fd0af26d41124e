// Merging of data sets: identical to Megatron's, order, modes, rejected inputs.
#include "colonnade/preprocess/merge_sets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "colonnade/base/error.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "support/files.h"

namespace colonnade::preprocess {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class MergeSetsTest : public ::testing::Test {
 protected:
  /// Copies a data set of the vectors into the folder under another name.
  void copy(const std::string& from, const std::string& to) {
    for (const char* end : {".bin", ".idx"})
      fs::copy_file(test::vector_path("indexed/" + from + end), folder_ / (to + end));
  }
  void expect_equal(const std::string& ours, const std::string& theirs) {
    for (const char* end : {".bin", ".idx"})
      EXPECT_TRUE(read_file(ours + end) == read_file(test::vector_path("indexed/" + theirs + end)))
          << theirs << end;
  }

  test::TempFolder folder_;
};

TEST_F(MergeSetsTest, WritesTheSameBytesAsMegatron) {
  copy("gpt2_uint16", "a");
  copy("bert_uint16", "b");
  std::ofstream(folder_ / "notes.txt") << "no data set";
  const std::vector<std::string> prefixes = dataset_prefixes_in(folder_ / "");
  EXPECT_THAT(prefixes, ElementsAre(folder_ / "a", folder_ / "b"));
  const MergedCounts counts = merge_sets(prefixes, folder_ / "out", false);
  EXPECT_EQ(counts.documents, 366 + 275);
  EXPECT_EQ(counts.tokens, 45577 + 14499);
  expect_equal(folder_ / "out", "merged_uint16");
  EXPECT_EQ(folder_.num_files(), 7U) << "no temporary file remains";
}

TEST_F(MergeSetsTest, KeepsModes) {
  const std::string one = test::vector_path("indexed/multimodal_int32");
  merge_sets({one}, folder_ / "same", true);
  expect_equal(folder_ / "same", "multimodal_int32");
  merge_sets({one, one}, folder_ / "twice", true);
  const data::IndexedDataset single(one, true), twice(folder_ / "twice", true);
  ASSERT_EQ(twice.num_sequences(), 2 * single.num_sequences());
  for (std::int64_t i = 0; i < twice.num_sequences(); ++i)
    EXPECT_EQ(twice.mode(i), single.mode(i % single.num_sequences()));
  EXPECT_THAT(test::message_of<ConfigError>([&] { merge_sets({one}, folder_ / "without", false); }),
              HasSubstr("--multimodal must be given"));
}

TEST_F(MergeSetsTest, RejectsInconsistentInputs) {
  EXPECT_THAT(test::message_of<DataError>([&] { dataset_prefixes_in(folder_ / ""); }),
              HasSubstr("must hold data sets"));
  copy("gpt2_uint16", "a");
  copy("gpt_int32", "b");
  EXPECT_THAT(test::message_of<DataError>(
                  [&] { merge_sets(dataset_prefixes_in(folder_ / ""), folder_ / "out", false); }),
              HasSubstr("must have one type"));
  EXPECT_EQ(folder_.num_files(), 4U);
  EXPECT_THAT(test::message_of<ConfigError>([&] { merge_sets({folder_ / "a"}, folder_ / "./a.bin", false); }),
              HasSubstr("must name none of the inputs"));
  fs::remove(folder_ / "b.idx");
  EXPECT_THAT(test::message_of<DataError>([&] { dataset_prefixes_in(folder_ / ""); }),
              HasSubstr("b.idx: a data set must be two"));
}

}  // namespace
}  // namespace colonnade::preprocess
