// Images and text: the commands of the guide, and shards that cannot be read.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "program.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

/// Three images with captions.
void write_pictures(const TempFolder& folder) {
  fs::create_directories(folder / "pictures");
  const Words names{"rgb_420.jpg", "grey.jpg", "palette.png"};
  for (const std::string& name : names) {
    fs::copy_file(fs::path(test::vectors()) / "images" / name, folder / "pictures" / name);
    write_text((folder / "pictures" / name).replace_extension(".txt"), "this is called " + name + "\n");
  }
}

TEST(Images, GuideCommandsWork) {
  const TempFolder folder;
  write_pictures(folder);
  const std::string commands = commands_of_guide("image_data.md");
  ASSERT_THAT(commands, HasSubstr("--batches 20"));
  const Result result = shell(folder, commands);
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text,
              AllOf(HasSubstr("samples                 3"), HasSubstr("images                  40"),
                    HasSubstr("\"text\":\"this is called "), HasSubstr("skipped                 0")));
}

TEST(Images, TruncatedShardIsNamedOrSkipped) {
  const TempFolder folder;
  write_pictures(folder);
  const Result result = shell(folder,
                              "tar --create --sort=name --directory pictures --file whole.tar .\n"
                              "head --bytes=12500 whole.tar > cut.tar\n"
                              "colonnade data images cut.tar || echo code $?\n"
                              "colonnade data images cut.tar --on-error skip --show 9 --json cut.json\n");
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("cut.tar: a "), HasSubstr("at byte "), HasSubstr("code 3"),
                                 HasSubstr("skipped: "), HasSubstr("shards_cut_or_damaged   1")));
  const auto report = nlohmann::json::parse(read_text(folder / "cut.json"));
  EXPECT_EQ(report["first_samples"].size(), 9U);
  EXPECT_EQ(report["data"]["samples"], 2);
}

TEST(Images, UnreadableImageIsNamedWithItsSample) {
  const TempFolder folder;
  write_pictures(folder);
  const std::string tokenizer = test::vectors() + "/tokenizers/gpt2_bpe.json";
  const Result result =
      shell(folder,
            "head --bytes=2 pictures/rgb_420.jpg > cut; mv cut pictures/rgb_420.jpg\n"
            "tar --create --sort=name --directory pictures --file cut.tar .\n"
            "colonnade data images cut.tar --show 9 || echo code $?\n"
            "colonnade data images cut.tar --on-error skip --batches 2 --micro-batch-size 3 --seq-length 16 "
            "--tokenizer-type HuggingFaceTokenizer --tokenizer-model " +
                tokenizer + "\n");
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("error: cut.tar, sample ./rgb_420 at byte "), HasSubstr("code 3"),
                                 HasSubstr("skipped: cut.tar, sample ./rgb_420 at byte "),
                                 HasSubstr("got something else; convert it\n")));
}

TEST(Images, ConflictingFlagsAreRejected) {
  const Result result = run(colonnade({"data", "images", "x", "--batches", "3", "--context", "txt",
                                       "--image-size", "3", "--image-processor", "p.json"}));
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.text,
              AllOf(HasSubstr("--batches requires --seq-length"), HasSubstr("--context requires --answers"),
                    HasSubstr("--image-size must not be combined")));
}

TEST(Images, FlagsOfBatchesRequireBatches) {
  for (const char* flag :
       {"--seq-length=8", "--micro-batch-size=2", "--step-ms=1", "--image-size=32", "--image-processor=x",
        "--image-tokens=2", "--image-token=7", "--pad-token=3", "--max-image-pixels=9", "--tokenizer-type=x",
        "--tokenizer-model=x", "--vocab-size=9", "--merge-file=x"}) {
    const Result result = run(colonnade({"data", "images", "x", flag}));
    EXPECT_EQ(result.code, 2) << flag;
    EXPECT_THAT(result.text, HasSubstr("requires --batches; got none")) << flag;
  }
}

TEST(Images, NumbersOfSamplesMustBeIntegers) {
  const TempFolder folder;
  write_pictures(folder);
  const Result result = shell(folder,
                              "tar --create --sort=name --directory pictures --file a.tar .\n"
                              "colonnade data images a.tar --consumed-samples 1152921504606846976 --show 2\n"
                              "colonnade data images a.tar --show 9223372036854775807 || echo code $?\n");
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("\"number\":1152921504606846977"),
                                 HasSubstr("--show must be an integer, 0 to 100000"), HasSubstr("code 2")));
}

/// 24 samples in three shards, prepared as Energon does: image, txt, json with a question and answers. The
/// first two shards are the split train, the third is val.
class PreparedImages : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 24; ++i) {
      const fs::path stem = folder_ / fmt::format("parts/{}/{:02}", i / 8, i);
      fs::create_directories(stem.parent_path());
      fs::copy_file(fs::path(test::vectors()) / "images/grey.jpg", stem.string() + ".jpg");
      write_text(stem.string() + ".txt", fmt::format("caption {:02}", i));
      write_text(stem.string() + ".json",
                 fmt::format(R"({{"q": "question {0:02}", "a": ["{0}"], "c": "other {0:02}"}})", i));
    }
    fs::create_directories(folder_ / "set/.nv-meta");
    write_text(folder_ / "set/.nv-meta/split.yaml",
               "split_parts: {train: ['s-{0..1}.tar'], val: [s-2.tar]}\nexclude: []\n");
    write_text(folder_ / "set/.nv-meta/.info.json",
               R"({"shard_counts": {"s-0.tar": 8, "s-1.tar": 8, "s-2.tar": 8}})");
    write_text(folder_ / "set/.nv-meta/dataset.yaml", kCaptions);
    const Result packed =
        shell(folder_,
              "for i in 0 1 2; do tar --create --sort=name --directory parts/$i --file set/s-$i.tar .; done");
    ASSERT_EQ(packed.code, 0) << packed.text;
  }
  /// JSON result of `data images SHARDS FLAGS`.
  nlohmann::json report(const std::string& words) {
    const Result result = shell(folder_, "colonnade data images " + words + " --json r.json --workers 2");
    EXPECT_EQ(result.code, 0) << result.text;
    return nlohmann::json::parse(read_text(folder_ / "r.json"));
  }
  std::vector<std::string> texts(const std::string& words) {
    std::vector<std::string> texts;
    const auto about = report(words);
    for (const auto& sample : about["first_samples"]) texts.push_back(sample["text"]);
    return texts;
  }
  /// The samples of all shards in the order of a run.
  std::vector<int> order(const std::string& flags) {
    std::vector<int> samples;
    const auto about = report("'set/s-*.tar' --show 24 " + flags);
    for (const auto& sample : about["first_samples"]) samples.push_back(sample["sample"]);
    return samples;
  }
  static constexpr const char* kCaptions =
      "sample_type: {__module__: megatron.energon, __class__: CaptioningSample}\nfield_map: {image: jpg, caption: txt}\n";
  TempFolder folder_;
};

TEST_F(PreparedImages, AreThoseOfTheSplit) {
  EXPECT_EQ(report("set")["data"]["samples"], 16);
  for (const std::string& text : texts("set --split train --show 16")) EXPECT_LT(text, "caption 16");
  EXPECT_EQ(report("set --split val")["data"]["samples"], 8);
  for (const std::string& text : texts("set --split val --show 8")) EXPECT_GT(text, "caption 15");
}

TEST_F(PreparedImages, TakeFieldsFromFlags) {
  const auto questions = report("set --image jpg --context 'json[q]' --answers 'json[a]'");
  EXPECT_EQ(questions["data"]["type"], "questions and answers");
  EXPECT_THAT(std::string(questions["first_samples"][0]["text"]), HasSubstr("question "));
  EXPECT_THAT(texts("set --caption 'json[c]'"), testing::Each(HasSubstr("other ")));
  write_text(folder_ / "set/.nv-meta/dataset.yaml", "__class__: CrudeWebdataset\n");
  write_text(folder_ / "set/.nv-meta/captions.yaml", kCaptions);
  EXPECT_THAT(texts("set --split val --image jpg --caption 'json[c]'"), testing::Each(HasSubstr("other ")));
  EXPECT_THAT(texts("set --dataset-yaml captions.yaml"), testing::Each(HasSubstr("caption ")));
  EXPECT_EQ(shell(folder_, "colonnade data images set").code, 2);
}

TEST_F(PreparedImages, AreShuffledAsTheFlagsSay) {
  const std::vector<int> usual = order("");
  EXPECT_EQ(order("--seed 1234"), usual);
  EXPECT_NE(order("--seed 5"), usual);
  std::vector<int> blocks = order("--shuffle-block 4 --shuffle-window 1");
  for (std::size_t i = 0; i < 24; i += 4) {  // four adjacent samples; the last one wraps around to the first
    std::vector<int> block(blocks.begin() + static_cast<std::ptrdiff_t>(i),
                           blocks.begin() + static_cast<std::ptrdiff_t>(i) + 4);
    std::sort(block.begin(), block.end());
    int steps = 0;
    for (std::size_t k = 1; k < 4; ++k) steps += block[k] == block[k - 1] + 1 ? 1 : 0;
    EXPECT_GE(steps, block.front() == 0 && block.back() == 23 ? 2 : 3) << testing::PrintToString(block);
  }
}

TEST_F(PreparedImages, StartAfterTheConsumedSamples) {
  const std::vector<int> all = order("");
  const auto resumed = report("'set/s-*.tar' --consumed-samples 7 --show 3");
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(resumed["first_samples"][i]["number"], 7 + i);
    EXPECT_EQ(resumed["first_samples"][i]["sample"], all[7 + i]);
  }
}

/// A run of three sessions on 1, 2 and 4 ranks reads the samples of one rank, each once.
TEST_F(PreparedImages, AreReadOnceByRanksOfAnyNumberWithResumes) {
  const std::vector<int> all = order("");
  struct Session {
    int consumed, ranks, rows, batches;
  };
  std::map<int, int> read;  // number to sample
  for (const Session& session : {Session{0, 1, 3, 2}, Session{6, 2, 1, 5}, Session{16, 4, 2, 1}})
    for (int rank = 0; rank < session.ranks; ++rank) {
      const auto rows = report(fmt::format(
          "'set/s-*.tar' --show 24 --consumed-samples {} --data-parallel-size {} --data-parallel-rank {} "
          "--micro-batch-size {} --batches {} --seq-length 32 --tokenizer-type NullTokenizer --vocab-size 300 --image-size "
          "16 --caption 'json[a]'",
          session.consumed, session.ranks, rank, session.rows, session.batches))["rows"];
      ASSERT_EQ(rows.size(), static_cast<std::size_t>(session.rows * session.batches));
      for (const auto& row : rows) EXPECT_TRUE(read.emplace(row["number"], row["sample"]).second) << row;
    }
  ASSERT_EQ(read.size(), 24U);
  for (int n = 0; n < 24; ++n) EXPECT_EQ(read[n], all[static_cast<std::size_t>(n)]);
}

TEST_F(PreparedImages, ShowTheSamplesOfARank) {
  const std::vector<int> all = order("");
  const auto second = report("'set/s-*.tar' --show 3 --data-parallel-size 4 --data-parallel-rank 1");
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(second["first_samples"][i]["sample"], all[4 * i + 1]);
  EXPECT_THAT(run(colonnade({"data", "images", "x", "--data-parallel-rank", "1"})).text,
              HasSubstr("--data-parallel-rank must be below --data-parallel-size, 1; got 1"));
}

TEST_F(PreparedImages, HaveAtMostTheBytesOfTheFlag) {
  const Result result = shell(folder_,
                              "head --bytes=2000000 /dev/zero >> parts/2/16.jpg\n"
                              "tar --create --sort=name --directory parts/2 --file large.tar .\n"
                              "colonnade data images large.tar --show 8 && "
                              "colonnade data images large.tar --show 8 --max-sample-mb 1 || echo code $?\n");
  EXPECT_THAT(result.text, AllOf(HasSubstr("caption 16"), HasSubstr("at most 1048576 bytes; got 200"),
                                 HasSubstr("raise --max-sample-mb"), HasSubstr("code 3")));
}

TEST_F(PreparedImages, AreCountedWithTheirLinks) {
  const Result result = shell(folder_,
                              "ln parts/2/16.jpg parts/2/zz.jpg\n"
                              "tar --create --sort=name --directory parts/2 --file links.tar .\n"
                              "colonnade data images links.tar --show 0\n"
                              "colonnade data images\n");
  EXPECT_THAT(result.text, AllOf(HasSubstr("links_passed_over       1"), HasSubstr("--hard-dereference"),
                                 HasSubstr("shards must be given; got none; write FOLDER|SHARD")));
}

}  // namespace
}  // namespace colonnade::e2e
