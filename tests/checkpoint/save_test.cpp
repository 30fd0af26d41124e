// Saving and loading across layouts, files of the folder, assignment of writers, errors.
#include "colonnade/checkpoint/save.h"

#include <gmock/gmock.h>

#include "checkpoint/fixtures.h"
#include "colonnade/base/error.h"
#include "colonnade/base/progress.h"
#include "colonnade/checkpoint/checksum.h"
#include "colonnade/checkpoint/manifest.h"
#include "colonnade/checkpoint/safetensors.h"
#include "colonnade/checkpoint/save_plan.h"
#include "colonnade/comm/device_dispatch.h"
#include "support/backends.h"

namespace colonnade::checkpoint {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;

TEST(Save, EveryLayoutLoadsInEveryOtherBitForBit) {
  for (const Layout& from : layouts()) {
    const TempFolder run;
    const SaveResult result = save_toy(run, 7, from);
    ASSERT_TRUE(result.ok) << result.problem;
    EXPECT_EQ(result.folder, run.path() / "checkpoints/step_00000007");
    const CheckpointReader source = CheckpointReader::open(run);
    EXPECT_EQ(source.step(), 7);
    EXPECT_EQ(source.state(), (nlohmann::json{{"step", 7}, {"seed", 1234}, {"lr", 0.1}}));
    for (const Layout& to : layouts())
      EXPECT_TRUE(has_values(source, to, 7)) << from.name << " into " << to.name;
  }
}

/// On GPUs a save uses gloo alongside NCCL, which does not support host memory.
TEST(Save, HostTensorsAreSentAlongsideABackendWithoutHostSupport) {
  const Layout layout = layouts()[3];
  const TempFolder run;
  std::vector<SaveResult> results(static_cast<std::size_t>(layout.ranks));
  comm::run_ranks(layout.ranks, [&](comm::Communicators& ranks) {
    const std::vector<int> all = ranks.world().ranks();
    const auto make = [&](const char* name) { return ranks.factory()->make(all, ranks.rank(), name); };
    const comm::Group world(
        comm::dispatch_by_device(make("host"),
                                 std::make_shared<colonnade::test::DeviceOnlyBackend>(make("device"))),
        "world");
    results[static_cast<std::size_t>(ranks.rank())] =
        save(run, 7, snapshot_of(layout, ranks.rank(), 7, true), world, {});
  });
  for (const SaveResult& result : results) EXPECT_TRUE(result.ok) << result.problem;
  EXPECT_TRUE(has_values(CheckpointReader::open(run), layout, 7));
}

TEST(Save, WritingAndVerifyingReportProgress) {
  Progress page;
  const ProgressScope scope(page);
  const TempFolder run;
  std::int64_t before = page.read().heartbeat_ns;
  write_safetensors(run.path() / "x.safetensors", {{"x", at::zeros({1024})}});
  EXPECT_GT(page.read().heartbeat_ns, before);
  before = page.read().heartbeat_ns;
  file_checksum(run.path() / "x.safetensors");
  EXPECT_GT(page.read().heartbeat_ns, before);
}

TEST(Save, FolderIsReadableByHuggingFaceTools) {
  const TempFolder run;
  ASSERT_TRUE(save_toy(run, 1, layouts()[3]).ok);
  const fs::path folder = run.path() / "checkpoints/step_00000001";
  const auto index = nlohmann::json::parse(read_file(folder / "model.safetensors.index.json"));
  EXPECT_EQ(index["weight_map"].size(), toys().size());
  EXPECT_EQ(index["metadata"]["total_size"], 4 * 60 + 2 * 96 + 4 * 72 + 4 * 14 + 4);
  EXPECT_EQ(nlohmann::json::parse(read_file(folder / "config.json"))["model_type"], "toy");
  for (const Toy& toy : toys()) {
    const SafetensorsFile file(folder / index["weight_map"][toy.name].get<std::string>());
    EXPECT_TRUE(at::equal(file.view(toy.name), values(toy, 1))) << toy.name;
    EXPECT_EQ(file.metadata().at("format"), "pt");
  }
  fs::remove(folder / kManifestName);  // as another tool sees the folder
  const CheckpointReader foreign = CheckpointReader::open_hugging_face(folder);
  EXPECT_EQ(foreign.names().size(), toys().size());
  EXPECT_TRUE(at::equal(foreign.read(toys()[1].name), values(toys()[1], 1)));
}

TEST(Save, OneWriterWritesOneModelFileWithoutIndex) {
  const TempFolder run;
  ASSERT_TRUE(save_toy(run, 1).ok);
  const fs::path folder = run.path() / "checkpoints/step_00000001";
  EXPECT_TRUE(fs::exists(folder / "model.safetensors"));
  EXPECT_FALSE(fs::exists(folder / "model.safetensors.index.json"));
  EXPECT_EQ(read_file(run.path() / "checkpoints/latest"), "step_00000001\n");
}

TEST(Save, WritersHaveEqualSharesAndPreferTheirOwnTensors) {
  std::vector<std::string> descriptions;
  for (int rank = 0; rank < 4; ++rank) {
    Snapshot snapshot;
    if (rank < 2)  // two pipeline stages with one replica each: ranks 2 and 3 own nothing
      for (int layer = 0; layer < 8; ++layer)
        snapshot.model.push_back(
            {fmt::format("layer.{}.{}", rank, layer), {16, 16}, {0, 0}, at::zeros({16, 16})});
    descriptions.push_back(describe(snapshot));
  }
  const SavePlan plan = plan_save(descriptions);
  std::vector<int> tensors(4, 0);
  int at_home = 0;
  for (const PlannedTensor& tensor : plan.model) {
    ++tensors[static_cast<std::size_t>(tensor.writer)];
    at_home += tensor.slices[0].rank == tensor.writer ? 1 : 0;
  }
  EXPECT_EQ(tensors, (std::vector<int>{4, 4, 4, 4}));
  EXPECT_EQ(at_home, 8);
  EXPECT_EQ(plan.model_files[3], "model-00004-of-00004.safetensors");
}

/// Saves one 4 x 4 tensor of which two ranks own `boxes`; returns the message on each rank.
std::vector<std::string> messages_for(const fs::path& run, const std::vector<Box>& boxes) {
  std::vector<std::string> messages(boxes.size());
  comm::run_ranks(static_cast<int>(boxes.size()), [&](comm::Communicators& ranks) {
    const auto rank = static_cast<std::size_t>(ranks.rank());
    Snapshot snapshot;
    snapshot.model.push_back({"w", {4, 4}, boxes[rank].offset, at::ones(boxes[rank].shape)});
    messages[rank] = message_of([&] { save(run, 1, snapshot, ranks.world()); });
  });
  return messages;
}

TEST(Save, ElementsWithoutOrWithTwoOwnersAreRejectedOnAllRanks) {
  const TempFolder run;
  for (const std::string& message : messages_for(run, {{{0, 0}, {2, 4}}, {{2, 0}, {1, 4}}}))
    EXPECT_THAT(
        message,
        HasSubstr("'w': every element must be owned by one rank; got elements [3:4, 0:4] have no owner"));
  for (const std::string& message : messages_for(run, {{{0, 0}, {3, 4}}, {{2, 0}, {2, 4}}}))
    EXPECT_THAT(message, HasSubstr("elements [2:3, 0:4] have two owners"));
  EXPECT_TRUE(fs::is_empty(run.path()));
}

TEST(Save, SlicesOfOneNameMustAgree) {
  const Slice whole{"w", {2}, {0}, at::ones({1})};
  const Slice other{"w", {3}, {1}, at::ones({1})};
  const std::vector<std::string> texts{describe({.model = {whole}}), describe({.model = {other}})};
  EXPECT_THAT(message_of([&] { plan_save(texts); }),
              HasSubstr("one dtype and global shape; got F32 of [2] and, on rank 1"));
  const Slice full{"w", {2}, {0}, at::ones({2})};
  EXPECT_THAT(message_of([&] { plan_save({describe({.model = {full}, .optimizer = {full}})}); }),
              HasSubstr("unique"));
}

TEST(Save, SavingAStepAgainReplacesItAndLeavesNothingElse) {
  const TempFolder run;
  ASSERT_TRUE(save_toy(run, 3).ok);
  write_raw(run.path() / "checkpoints/step_00000003/extra", "x");
  ASSERT_TRUE(save_toy(run, 3, layouts()[1]).ok);
  EXPECT_TRUE(has_values(CheckpointReader::open(run), layouts()[0], 3));
  EXPECT_FALSE(fs::exists(run.path() / "checkpoints/step_00000003/extra"));
  EXPECT_EQ(std::distance(fs::directory_iterator(run.path() / "checkpoints"), fs::directory_iterator()), 2);
}

TEST(Save, RetentionKeepsMultiplesAndTheNewest) {
  const TempFolder run;
  const SaveOptions options{.retain_interval = 20};
  for (const int step : {10, 20, 30, 40, 50, 55}) ASSERT_TRUE(save_toy(run, step, {}, options).ok);
  std::vector<std::int64_t> kept;
  for (const auto& [step, folder] : step_folders(run.path() / "checkpoints")) kept.push_back(step);
  EXPECT_EQ(kept, (std::vector<std::int64_t>{20, 40, 55}));
  EXPECT_TRUE(leftovers(run.path() / "checkpoints").empty());
}

TEST(Save, LargeMatrixOfOddSizeIsSentCompletely) {
  const TempFolder run;
  const at::Tensor whole = at::randn({1537, 515});
  comm::run_ranks(3, [&](comm::Communicators& ranks) {
    Snapshot snapshot;
    const std::int64_t begin = ranks.rank() * 200;
    const std::int64_t end = ranks.rank() == 2 ? 515 : begin + 200;
    snapshot.model.push_back({"big", {1537, 515}, {0, begin}, whole.slice(1, begin, end)});
    EXPECT_TRUE(save(run, 1, snapshot, ranks.world()).ok);
  });
  EXPECT_TRUE(at::equal(CheckpointReader::open(run).read("big"), whole));
}

}  // namespace
}  // namespace colonnade::checkpoint
