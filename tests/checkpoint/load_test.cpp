// Reading tensors, dtype conversions and errors, and the choice of a checkpoint.
#include "colonnade/checkpoint/load.h"

#include <gmock/gmock.h>

#include "checkpoint/fixtures.h"
#include "colonnade/base/error.h"
#include "colonnade/checkpoint/hugging_face.h"
#include "colonnade/checkpoint/manifest.h"
#include "support/vectors.h"

namespace colonnade::checkpoint {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)
using testing::HasSubstr;

fs::path step_folder(const fs::path& run, std::int64_t step) {
  return run / "checkpoints" / step_folder_name(step);
}

void flip_last_byte(const fs::path& path) {
  std::string text = read_file(path);
  text.back() = static_cast<char>(text.back() ^ 1);
  write_raw(path, text);
}

TEST(CheckpointReader, ReadsAHuggingFaceFolder) {
  const fs::path folder = fs::path(colonnade::test::vectors()) / "hf/llama";
  EXPECT_TRUE(is_hugging_face_folder(folder));
  const CheckpointReader source = CheckpointReader::open(folder);
  EXPECT_EQ(source.names().size(), 21);
  EXPECT_EQ(source.hf_config()["model_type"], "llama");
  EXPECT_EQ(source.step(), -1);
  EXPECT_TRUE(source.state().is_null());
  // A column block of rows 3 to 5 in bf16, into a strided destination.
  const at::Tensor whole = SafetensorsFile(folder / "model.safetensors").view("lm_head.weight");
  const at::Tensor destination = at::zeros({8, 2}, at::kBFloat16).t();
  source.read_into({"lm_head.weight", {320, 64}, {3, 10}, destination});
  EXPECT_TRUE(at::equal(destination, whole.slice(0, 3, 5).slice(1, 10, 18).to(at::kBFloat16)));
}

TEST(CheckpointReader, ReadsHuggingFaceShardsAndRejectsPathsInTheIndex) {
  const TempFolder folder;
  write_safetensors(folder.path() / "s1.safetensors", {{"a", at::ones({2})}});
  write_safetensors(folder.path() / "s2.safetensors", {{"b", at::zeros({3})}});
  write_raw(folder.path() / "config.json", "{}");
  const fs::path index = folder.path() / "model.safetensors.index.json";
  write_raw(index, R"({"weight_map":{"a":"s1.safetensors","b":"s2.safetensors"}})");
  EXPECT_EQ(CheckpointReader::open(folder).names(), (std::vector<std::string>{"a", "b"}));
  write_raw(index, R"({"weight_map":{"a":"../s1.safetensors"}})");
  EXPECT_THAT(message_of([&] { CheckpointReader::open(folder); }),
              HasSubstr("must be plain; got '../s1.safetensors'"));
  write_raw(index, R"({"weight_map":{"c":"s1.safetensors"}})");
  EXPECT_THAT(message_of([&] { CheckpointReader::open(folder); }), HasSubstr("'c'"));
  write_raw(index, R"({"weight_map":[1]})");
  EXPECT_THAT(message_of([&] { CheckpointReader::open(folder); }), HasSubstr("weight_map"));
  write_raw(index, "{");
  EXPECT_THAT(message_of([&] { CheckpointReader::open(folder); }), HasSubstr("must be JSON"));
}

TEST(CheckpointReader, ConvertsFloatsAndRejectsOtherDtypes) {
  const TempFolder run;
  ASSERT_TRUE(save_toy(run, 2).ok);
  const CheckpointReader source = CheckpointReader::open(run);
  const Toy& toy = toys()[0];
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16, at::kDouble}) {
    const at::Tensor got = at::zeros(toy.shape, type);
    source.read_into({toy.name, toy.shape, {0, 0}, got});
    EXPECT_TRUE(at::equal(got, values(toy, 2).to(type)));
  }
  EXPECT_THAT(message_of([&] {
                source.read_into({toy.name, toy.shape, {0, 0}, at::zeros(toy.shape, at::kInt)});
              }),
              HasSubstr("must be I32 or convertible to it; got F32"));
}

TEST(CheckpointReader, FillsParametersThatRequireGradients) {
  const TempFolder run;
  ASSERT_TRUE(save_toy(run, 2).ok);
  const Toy& toy = toys()[3];
  const at::Tensor parameter = at::zeros(toy.shape).requires_grad_();
  CheckpointReader::open(run).read_into({toy.name, toy.shape, {0}, parameter});
  EXPECT_TRUE(at::equal(parameter.detach(), values(toy, 2)));
}

TEST(CheckpointReader, ReportsMissingTensorsAndOtherShapes) {
  const TempFolder run;
  ASSERT_TRUE(save_toy(run, 2).ok);
  const CheckpointReader source = CheckpointReader::open(run);
  EXPECT_THAT(message_of([&] { (void)source.read("lm_head.weight"); }),
              HasSubstr("must hold the tensor 'lm_head.weight'; got 10 others"));
  EXPECT_THAT(message_of([&] {
                source.read_into({"model.norm.weight", {16}, {0}, at::zeros({16})});
              }),
              HasSubstr("must have the shape of this model, [16]; got [14]"));
  EXPECT_THAT(message_of([&] {
                source.read_into({"model.norm.weight", {14}, {7}, at::zeros({8})});
              }),
              HasSubstr("[7:15]"));
  EXPECT_THAT(message_of([&] { CheckpointReader::open(run.path() / "nothing"); }),
              HasSubstr("got none of them"));
}

TEST(CheckpointReader, TruncatedFileIsRejectedBeforeItIsMapped) {
  const TempFolder run;
  ASSERT_TRUE(save_toy(run, 2).ok);
  const CheckpointReader source = CheckpointReader::open_native(step_folder(run, 2));
  fs::resize_file(step_folder(run, 2) / "model.safetensors", 100);
  EXPECT_THAT(message_of([&] { (void)source.read("model.norm.weight"); }),
              HasSubstr("bytes as in the manifest; got 100"));
}

TEST(FindCheckpoint, MissingFolderGivesNothing) {
  const TempFolder run;
  EXPECT_FALSE(find_checkpoint(run.path() / "missing"));
  EXPECT_FALSE(find_checkpoint(run));
  fs::create_directory(run.path() / "checkpoints");
  EXPECT_FALSE(find_checkpoint(run));
}

TEST(FindCheckpoint, UnreadableFolderIsAnError) {
  const TempFolder run;
  fs::create_symlink("checkpoints",
                     run.path() / "checkpoints");  // a link to itself is unreadable for everyone
  EXPECT_THAT(message_of([&] { find_checkpoint(run); }),
              HasSubstr("the folder must be readable; got Too many levels of symbolic links"));
  EXPECT_THAT(message_of([&] { find_checkpoint(run.path() / "checkpoints"); }),
              HasSubstr("must be readable"));
  EXPECT_FALSE(is_hugging_face_folder(run.path() / "checkpoints"));
}

TEST(FindCheckpoint, ReturnsLatestOrTheRequestedStep) {
  const TempFolder run;
  for (const int step : {10, 20, 30}) ASSERT_TRUE(save_toy(run, step).ok);
  EXPECT_EQ(find_checkpoint(run)->step, 30);
  EXPECT_EQ(find_checkpoint(run.path() / "checkpoints")->step, 30);
  EXPECT_EQ(find_checkpoint(run, 10)->step, 10);
  EXPECT_EQ(find_checkpoint(step_folder(run, 20))->step, 20);
  EXPECT_EQ(find_checkpoint(step_folder(run, 20) / "")->folder, step_folder(run, 20));  // trailing slash
  EXPECT_THAT(message_of([&] { find_checkpoint(run, 15); }), HasSubstr("step 15; got steps [10, 20, 30]"));
  set_latest(run.path() / "checkpoints", 20);  // a run reset by hand
  EXPECT_EQ(find_checkpoint(run)->step, 20);
  fs::remove(run.path() / "checkpoints/latest");
  EXPECT_EQ(find_checkpoint(run)->step, 30);
}

TEST(FindCheckpoint, FallsBackToTheLastIntactOneAndReportsTheDamagedOnes) {
  const TempFolder run;
  for (const int step : {10, 20, 30, 40}) ASSERT_TRUE(save_toy(run, step).ok);
  fs::remove_all(step_folder(run, 40));                                    // `latest` names a missing step
  flip_last_byte(step_folder(run, 30) / "optimizer-00000.safetensors");    // right size, wrong bytes
  fs::create_directory(run.path() / "checkpoints/step_00000050.staging");  // a killed save
  testing::internal::CaptureStderr();
  const auto found = find_checkpoint(run);
  const std::string said = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 20);
  ASSERT_EQ(found->skipped.size(), 2);
  EXPECT_THAT(found->skipped[0], HasSubstr("step_00000040"));
  EXPECT_THAT(found->skipped[1], HasSubstr("checksum"));
  EXPECT_THAT(said, HasSubstr("damaged"));
  EXPECT_EQ(find_checkpoint(run, std::nullopt, {}, Check::kSizes)->step, 30);
  EXPECT_THAT(message_of([&] { find_checkpoint(run, 30); }), HasSubstr("checksum"));
}

TEST(FindCheckpoint, AllDamagedIsAnErrorAndNotANewRun) {
  const TempFolder run;
  ASSERT_TRUE(save_toy(run, 10).ok);
  fs::remove(step_folder(run, 10) / kManifestName);
  EXPECT_THROW(find_checkpoint(run), DataError);
}

TEST(FindCheckpoint, RanksShareTheWorkAndAgree) {
  const TempFolder run;
  for (const int step : {10, 20}) ASSERT_TRUE(save_toy(run, step, layouts()[3]).ok);
  for (const auto& entry : fs::directory_iterator(step_folder(run, 20))) {
    if (entry.path().filename() == kManifestName) continue;
    const std::string good = read_file(entry.path());
    flip_last_byte(entry.path());
    comm::run_ranks(4, [&](comm::Communicators& ranks) {
      EXPECT_EQ(find_checkpoint(run, std::nullopt, ranks.world())->step, 10) << entry.path();
    });
    write_raw(entry.path(), good);
  }
  comm::run_ranks(4, [&](comm::Communicators& ranks) {
    EXPECT_EQ(find_checkpoint(run, std::nullopt, ranks.world())->step, 20);
  });
}

}  // namespace
}  // namespace colonnade::checkpoint
