// Faults that rank 0 finds in data and run folder end every rank.
#include "colonnade/train/start_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "colonnade/base/error.h"
#include "colonnade/comm/thread_ranks.h"

namespace colonnade::train {
namespace {

/// A dataset with unreadable files.
class Unreadable final : public data::SampleSource {
 public:
  [[nodiscard]] std::int64_t size() const override { return 1; }
  void tokens(std::int64_t, std::int64_t, std::span<std::int64_t>) const override {}
  [[nodiscard]] std::string name() const override { return "data"; }
  [[nodiscard]] std::vector<data::SampleOrder> orders() const override { return {}; }
  [[nodiscard]] std::vector<data::SampleSpan> spans(std::int64_t) const override { return {}; }
  void read(const data::SampleSpan&, std::span<std::int64_t>) const override {}
  void for_each_source(const data::SourceVisitor&) const override { throw DataError("data must be whole"); }
};

class WithVocabulary final : public data::Batches {
 public:
  WithVocabulary() : Batches(std::make_shared<Unreadable>(), 0) {}
  [[nodiscard]] data::TextIds text_ids() const override { return {10, 10}; }

 private:
  [[nodiscard]] data::HostBatch make(std::span<const std::int64_t>) const override { return {}; }
};

TEST(StartPoint, UnreadableDataEndsAllRanks) {
  std::vector<std::string> faults;
  std::mutex mutex;
  comm::run_ranks(3, [&](comm::Communicators& ranks) {
    data::Splits splits;
    splits[0] = std::make_unique<WithVocabulary>();
    try {
      require_ids_in_vocabulary(splits, ranks.world());
    } catch (const DataError& error) {
      const std::scoped_lock lock(mutex);
      faults.emplace_back(error.what());
    }
  });
  EXPECT_THAT(faults, testing::ElementsAre("data must be whole", "data must be whole", "data must be whole"));
}

TEST(StartPoint, FolderOwnedByAnotherProcessEndsAllRanks) {
  const std::filesystem::path run = std::filesystem::path(testing::TempDir()) / "agreed_folder_test";
  std::vector<std::string> faults;
  std::mutex mutex;
  {
    const record::OwnedFolder other(run, std::nullopt);
    comm::run_ranks(3, [&](comm::Communicators& ranks) {
      try {
        agree_on_folder(run, std::nullopt, ranks.world());
      } catch (const ConfigError& error) {
        const std::scoped_lock lock(mutex);
        faults.emplace_back(error.what());
      }
    });
  }
  EXPECT_THAT(faults, testing::AllOf(testing::SizeIs(3), testing::Each(testing::HasSubstr("held by host "))));
  comm::run_ranks(3, [&](comm::Communicators& ranks) {
    const SharedRunFolder agreed = agree_on_folder(run, std::nullopt, ranks.world());
    EXPECT_EQ(agreed.folder.root, run);
    EXPECT_EQ(agreed.owned != nullptr, ranks.rank() == 0);
  });
}

}  // namespace
}  // namespace colonnade::train
