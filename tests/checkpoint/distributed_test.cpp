// Folders of torch.distributed.checkpoint: what is written is read, and damage is an error with file and
// tensor.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/fixtures.h"
#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/checkpoint/distributed.h"
#include "colonnade/checkpoint/distributed_writer.h"
#include "colonnade/pickle/write.h"

namespace colonnade::checkpoint {
namespace {

using test::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// "w" of [4, 6] in four chunks in two files, a scalar "s", and an object.
std::vector<Segment> write_folder(const std::filesystem::path& folder, const at::Tensor& w) {
  std::vector<Segment> all;
  for (const std::int64_t file : {0, 1}) {
    SegmentWriter writer(folder / fmt::format("__{}_0.distcp", file));
    for (const std::int64_t column : {0, 2})
      writer.add(
          {"w", {4, 6}, {2 * file, column}, w.narrow(0, 2 * file, 2).narrow(1, column, column == 0 ? 2 : 4)});
    if (file == 0) writer.add({"s", {}, {}, at::scalar_tensor(3.5, at::kDouble)});
    pickle::Writer object;
    object.begin_list(), object.text("value"), object.end_list();
    if (file == 1) writer.add_object("o/shard_0_1", std::move(object).finish());
    for (Segment& segment : writer.finish()) all.push_back(std::move(segment));
  }
  write_file_atomically(folder / ".metadata", distributed_metadata(all));
  return all;
}

std::string open_fault(const std::filesystem::path& folder) {
  try {
    (void)open_distributed(folder);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

TEST(Distributed, WhatIsWrittenIsRead) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kLong, at::kByte}) {
    const TempFolder folder;
    const at::Tensor w = at::arange(24, dtype).view({4, 6});
    (void)write_folder(folder.path(), w);
    const DistributedFolder read = open_distributed(folder.path());
    ASSERT_EQ(read.tensors.size(), 2U);
    const ComposedTensor& tensor = read.tensors.at("w");
    EXPECT_EQ(tensor.dtype, dtype);
    at::Tensor whole = at::zeros({4, 6}, dtype);
    read_box(tensor, {"w", {4, 6}, {0, 0}, whole});
    EXPECT_TRUE(at::equal(whole, w));
    at::Tensor box = at::zeros({3, 3}, dtype);
    read_box(tensor, {"w", {4, 6}, {1, 1}, box});
    EXPECT_TRUE(at::equal(box, w.narrow(0, 1, 3).narrow(1, 1, 3)));
    EXPECT_EQ(read.objects.at("o/shard_0_1").root().items.at(0)->text, "value");
  }
}

TEST(Distributed, SegmentsAreTheSameAsTextAndBack) {
  const TempFolder folder;
  const std::vector<Segment> all = write_folder(folder.path(), at::arange(24, at::kFloat).view({4, 6}));
  EXPECT_EQ(to_text(segments_of(to_text(all))), to_text(all));
}

TEST(Distributed, DamageIsAnErrorWithFileAndTensor) {
  const TempFolder folder;
  std::vector<Segment> all = write_folder(folder.path(), at::arange(24, at::kFloat).view({4, 6}));
  const auto with = [&](std::size_t i, auto change) {
    std::vector<Segment> changed = all;
    change(changed[i]);
    write_file_atomically(folder.path() / ".metadata", distributed_metadata(changed));
    return open_fault(folder.path());
  };
  EXPECT_THAT(
      with(0, [](Segment& s) { s.length += 1'000'000; }),
      AllOf(HasSubstr("'w' must lie in __0_0.distcp, which has"), HasSubstr("copy the folder again")));
  EXPECT_THAT(with(0, [](Segment& s) { s.offset += 8; }),
              HasSubstr("'w': a file of torch.save must be an intact zip"));
  EXPECT_THAT(with(0, [](Segment& s) { s.file = "../x"; }),
              HasSubstr("must be in a file of the folder; got '../x'"));
  EXPECT_THAT(with(1, [](Segment& s) { s.box.offset[1] = 1; }),
              HasSubstr("'w' must be covered once by its chunks; got"));
  EXPECT_THAT(with(0, [](Segment& s) { s.dtype = at::kHalf; }),
              HasSubstr("'w' must have chunks of F16; got F32"));
  std::vector<Segment> missing = all;
  missing.erase(missing.begin());
  write_file_atomically(folder.path() / ".metadata", distributed_metadata(missing));
  EXPECT_THAT(open_fault(folder.path()), HasSubstr("elements [0:2, 0:2] have no owner"));
  std::filesystem::resize_file(folder.path() / "__1_0.distcp", 100);
  write_file_atomically(folder.path() / ".metadata", distributed_metadata(all));
  EXPECT_THAT(open_fault(folder.path()), HasSubstr("which has 100 bytes"));
  write_file_atomically(folder.path() / ".metadata", std::string("\x80\x02"
                                                                 "cos\nsystem\n)R."));
  EXPECT_THAT(open_fault(folder.path()), AllOf(HasSubstr(".metadata"), HasSubstr("got os.system")));
}

}  // namespace
}  // namespace colonnade::checkpoint
