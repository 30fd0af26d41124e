// Images and text: the commands of the guide, and shards that cannot be read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "program.h"

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
    fs::copy_file(fs::path(COLONNADE_VECTORS) / "images" / name, folder / "pictures" / name);
    write_text((folder / "pictures" / name).replace_extension(".txt"), "this is called " + name + "\n");
  }
}

TEST(Images, TheCommandsOfTheGuideWork) {
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

TEST(Images, AShardThatIsCutEndsWithItsNameOrIsSkipped) {
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

TEST(Images, FlagsThatContradictAreRefused) {
  const Result result = run(colonnade({"data", "images", "x", "--batches", "3", "--context", "txt",
                                       "--image-size", "3", "--image-processor", "p.json"}));
  EXPECT_EQ(result.code, 2);
  EXPECT_THAT(result.text,
              AllOf(HasSubstr("--batches: needs --seq-length"), HasSubstr("--context: must be given with"),
                    HasSubstr("--image-size: must be left out")));
}

TEST(Images, FlagsOfBatchesNeedThem) {
  for (const char* flag :
       {"--seq-length=8", "--micro-batch-size=2", "--step-ms=1", "--image-size=32", "--image-processor=x",
        "--image-tokens=2", "--image-token=7", "--pad-token=3", "--max-image-pixels=9", "--tokenizer-type=x",
        "--tokenizer-model=x", "--vocab-size=9", "--merge-file=x"}) {
    const Result result = run(colonnade({"data", "images", "x", flag}));
    EXPECT_EQ(result.code, 2) << flag;
    EXPECT_THAT(result.text, HasSubstr("is read with --batches; got none")) << flag;
  }
}

TEST(Images, NumbersOfSamplesStayIntegers) {
  const TempFolder folder;
  write_pictures(folder);
  const Result result = shell(folder,
                              "tar --create --sort=name --directory pictures --file a.tar .\n"
                              "colonnade data images a.tar --consumed-samples 1152921504606846976 --show 2\n"
                              "colonnade data images a.tar --show 9223372036854775807 || echo code $?\n");
  ASSERT_EQ(result.code, 0) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("\"number\":1152921504606846977"),
                                 HasSubstr("--show: must be an integer, 0 to 100000"), HasSubstr("code 2")));
}

}  // namespace
}  // namespace colonnade::e2e
