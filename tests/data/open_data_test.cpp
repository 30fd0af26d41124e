// Samples of each split of a run: full validation and multiple validation sets.
#include "colonnade/data/open_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "colonnade/data/samples/gpt/gpt_batches.h"
#include "support/files.h"

namespace colonnade::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;
using Ints = std::vector<std::int64_t>;

class OpenDataTest : public ::testing::Test {
 protected:
  OpenDataTest() {
    log::set_level(log::Level::kError);
    data_.data_cache_path = folder_ / "cache";
    training_.seq_length = 64;
    training_.global_batch_size = 8;
    training_.seed = 99;
    training_.train_iters = 10;
    training_.eval_interval = 5;
    training_.full_validation = true;
  }
  ~OpenDataTest() override { log::set_level(log::Level::kInfo); }

  [[nodiscard]] Splits open() const { return open_gpt_batches(data_, training_, {}); }
  [[nodiscard]] Splits open_valid(const std::vector<std::string>& paths, bool sets = false) {
    data_.train_data_path = {first_};
    data_.valid_data_path = paths;
    data_.multiple_validation_sets = sets;
    return open();
  }

  test::TempFolder folder_;
  config::Data data_;
  config::Training training_;
  const std::string first_ = test::vector_path("indexed/gpt_uint16");    // 883 samples
  const std::string second_ = test::vector_path("indexed/gpt2_uint16");  // 712 samples
};

Ints tokens_of(const Batches& batches, std::int64_t first, std::int64_t count) {
  return batches.get(first, count).tokens;
}

TEST_F(OpenDataTest, FullValidationIsOneEpochWhateverTheNumberOfEvaluations) {
  for (const std::int64_t iterations : {10, 5000}) {
    training_.train_iters = iterations;
    EXPECT_EQ(open_valid({second_})[1]->size(), 712);
  }
  EXPECT_EQ(open_valid({"0.5", second_})[1]->size(), 712) << "a single data set is no blend";
  data_.train_data_path = data_.valid_data_path = {};
  data_.data_path = {first_};
  data_.split = "8,2,0";
  training_.eval_iters = 1000;
  const std::int64_t share = open()[1]->size();
  training_.full_validation = false;
  training_.train_iters = 10;
  training_.eval_iters = 1;
  EXPECT_EQ(share, open()[1]->size()) << "one evaluation reads no more than one epoch";
}

TEST_F(OpenDataTest, FullValidationReadsSamplesInIndexOrderForEveryDataloaderType) {
  const Splits single = open_valid({second_});
  data_.dataloader_type = "cyclic";
  const Splits cyclic = open_valid({second_});
  EXPECT_TRUE(cyclic[0]->is_cyclic());
  EXPECT_FALSE(cyclic[1]->is_cyclic());
  EXPECT_EQ(tokens_of(*cyclic[1], 0, 712), tokens_of(*single[1], 0, 712));
}

TEST_F(OpenDataTest, FullValidationOfABlendIsMegatronsExhaustiveBlend) {
  for (int round = 0; round < 2; ++round) {  // the second from the cache
    const Splits splits = open_valid({first_, second_});
    const auto& blend = dynamic_cast<const BlendedDataset&>(splits[1]->samples());
    const auto recorded = [](const char* name) {
      return IntArray::map(test::vector_path(std::string("indexed/gpt/blend_exhaustive.") + name + ".npy"));
    };
    const IntArray dataset = recorded("dataset_index"), sample = recorded("dataset_sample_index");
    ASSERT_EQ(blend.size(), dataset.rows());
    for (std::int64_t i = 0; i < blend.size(); ++i) {
      EXPECT_EQ(blend.index().dataset[i], dataset[i]) << i;
      EXPECT_EQ(blend.index().sample[i], sample[i]) << i;
    }
    EXPECT_THAT(blend.validation_sets(), testing::SizeIs(1));
  }
  EXPECT_THAT(test::message_of<ConfigError>([this] {
                (void)open_valid({"0.3", first_, "0.7", second_});
              }),
              HasSubstr("--full-validation requires a blend without weights"));
}

TEST_F(OpenDataTest, ValidationSetsAreConcatenated) {
  const Splits both = open_valid({first_, second_}, true);
  const std::vector<Range> sets = both[1]->samples().validation_sets();
  ASSERT_EQ(sets.size(), 2U);
  EXPECT_EQ(sets[0].begin, 0);
  EXPECT_EQ(sets[0].end, 883);
  EXPECT_EQ(sets[1].begin, 883);
  EXPECT_EQ(sets[1].end, 883 + 712);
  EXPECT_EQ(both[1]->size(), 883 + 712);
  const Splits one = open_valid({first_}), other = open_valid({second_});
  EXPECT_EQ(tokens_of(*both[1], 0, 883), tokens_of(*one[1], 0, 883));
  EXPECT_EQ(tokens_of(*both[1], 883, 712), tokens_of(*other[1], 0, 712));
  EXPECT_THROW((void)both[1]->get(883 + 712, 1), DataError);
  const auto orders = both[1]->samples().orders();
  ASSERT_EQ(orders.size(), 2U);
  EXPECT_EQ(orders[1].name, second_);
  EXPECT_EQ(orders[1].asked, std::nullopt);
  // Spans for `data audit`.
  const auto pieces = both[1]->samples().spans(883);
  ASSERT_FALSE(pieces.empty());
  EXPECT_EQ(pieces[0].set, 1);
  Ints text(static_cast<std::size_t>(pieces[0].length));
  both[1]->samples().read(pieces[0], text);
  const Ints row = tokens_of(*both[1], 883, 1);
  EXPECT_TRUE(
      std::equal(text.begin(), text.begin() + std::min<std::ptrdiff_t>(std::ssize(text), 64), row.begin()));
}

TEST_F(OpenDataTest, ASingleValidationSetIsSupported) {
  EXPECT_THAT(open_valid({"1", second_}, true)[1]->samples().validation_sets(), testing::SizeIs(1));
}

TEST_F(OpenDataTest, ABlendWarnsOfAnEmptyEvaluationSplitOfOneDataset) {
  log::set_level(log::Level::kInfo);
  IndexedDatasetBuilder builder(folder_ / "short", TokenType::kUint16);  // one document, used for training
  builder.add_document(std::vector<std::int32_t>(500, 7), std::vector<std::int32_t>{500});
  builder.finalize();
  const std::string one = folder_ / "short";
  training_.full_validation = false;
  training_.eval_iters = 1;
  data_.data_path = {"0.9", first_, "0.1", one};
  const auto logged = [&](const std::string& split) {
    data_.split = split;
    testing::internal::CaptureStderr();
    const Splits splits = open();
    EXPECT_NE(splits[0], nullptr);
    EXPECT_EQ(splits[1], nullptr);
    return testing::internal::GetCapturedStderr();
  };
  const std::string valid = logged("9,1,0");
  EXPECT_THAT(valid,
              AllOf(HasSubstr("warning: " + one + ": the valid split must hold one sample of "),
                    HasSubstr("; the valid split is not evaluated: a blend must hold samples of each data "
                              "set; raise the split's share (--split)"),
                    HasSubstr("--train-data-path, --valid-data-path")));
  EXPECT_EQ(valid.find("warning: "), valid.rfind("warning: ")) << "a single warning";
  EXPECT_THAT(logged("9,0,1"),
              AllOf(HasSubstr(": the test split must"), HasSubstr("the test split is not evaluated: ")));
  data_.data_path = {one};
  EXPECT_THAT(logged("9,1,0"),
              AllOf(testing::Not(HasSubstr("blend")), HasSubstr("no valid batches; add data")))
      << "not a blend";
  IndexedDatasetBuilder nothing(folder_ / "empty", TokenType::kUint16);
  nothing.add_document({}, {});
  nothing.finalize();
  data_.data_path.clear();
  data_.train_data_path = {first_};
  data_.valid_data_path = {"0.5", first_, "0.5", folder_ / "empty"};
  EXPECT_THAT(logged("9,1,0"),
              AllOf(HasSubstr("empty: the valid split must"), testing::Not(HasSubstr("--split")),
                    HasSubstr("of each data set; remove it from --valid-data-path")));
}

TEST_F(OpenDataTest, AnEmptyValidationSetIsReported) {
  training_.seq_length = 50000;  // more tokens than the second one has
  EXPECT_THAT(test::message_of<DataError>([this] {
                (void)open_valid({first_, second_}, true);
              }),
              AllOf(HasSubstr(second_), HasSubstr("a validation set must hold samples; got none")));
}

}  // namespace
}  // namespace colonnade::data
