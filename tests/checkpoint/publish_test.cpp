// A staging folder gets its final name at once, also over a previous folder of that name.
#include "colonnade/checkpoint/publish.h"

#include <gtest/gtest.h>

#include "checkpoint/fixtures.h"
#include "colonnade/base/files.h"

namespace colonnade::checkpoint {
namespace {

TEST(Publish, RenamesTheStagingFolderAndReplacesAPreviousOne) {
  const test::TempFolder folder;
  const std::filesystem::path final_name = folder.path() / "step_00000001";
  const std::filesystem::path staging = with_suffix(final_name, kStagingSuffix);
  for (const char* text : {"first", "second"}) {
    std::filesystem::create_directory(staging);
    write_file_atomically(staging / "file", text);
    publish(staging, final_name);
    EXPECT_EQ(read_file(final_name / "file"), text);
    EXPECT_FALSE(std::filesystem::exists(staging));
    EXPECT_FALSE(std::filesystem::exists(with_suffix(final_name, kRemovedSuffix)));
  }
}

}  // namespace
}  // namespace colonnade::checkpoint
