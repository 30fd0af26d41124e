// Tar archives in the three formats of Python's tarfile, and hostile ones.
#include "colonnade/images/tar.h"

#include <gmock/gmock.h>

#include "colonnade/base/error.h"
#include "images/image_vectors.h"

namespace colonnade::images {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// "NAME: CONTENT" of the files in an archive.
std::vector<std::string> list(const std::string& bytes, bool whole = true) {
  const auto read = [&](std::int64_t at, std::span<char> out) {
    return at >= static_cast<std::int64_t>(bytes.size())
               ? 0
               : bytes.copy(out.data(), out.size(), static_cast<std::size_t>(at));
  };
  TarReader tar("t.tar", 0, static_cast<std::int64_t>(bytes.size()), whole, read);
  std::vector<std::string> found;
  TarMember member;
  while (tar.next(member)) {
    EXPECT_LE(member.content + member.size, member.end);
    if (member.regular)
      found.push_back(
          member.name + ": " +
          bytes.substr(static_cast<std::size_t>(member.content), static_cast<std::size_t>(member.size)));
  }
  return found;
}

std::string error_of(const std::string& bytes) {
  return test::message_of<DataError>([&] { (void)list(bytes); });
}

std::string pax_record(const std::string& text) {
  for (std::size_t length = text.size() + 2;; ++length)
    if (const std::string record = fmt::format("{} {}\n", length, text); record.size() == length)
      return record;
}

/// A size in base 256: the highest bit is set, followed by the number.
std::string base256(std::uint64_t high, std::uint64_t low) {
  std::string field(12, '\0');
  for (std::size_t i = 0; i < 8; ++i) field[11 - i] = static_cast<char>(low >> (8 * i));
  for (std::size_t i = 0; i < 4; ++i) field[3 - i] = static_cast<char>(high >> (8 * i));
  field[0] = static_cast<char>(static_cast<unsigned char>(field[0]) | 0x80U);
  return field;
}

TEST(Tar, ListsRegularFilesOnly) {
  EXPECT_THAT(list(tar_member("a/", "", '5') + tar_member("a/x.txt", "one") + tar_member("l", "", '2') +
                   tar_member("y", std::string(600, 'y')) + tar_end()),
              ElementsAre("a/x.txt: one", "y: " + std::string(600, 'y')));
  EXPECT_THAT(list(tar_end()), ElementsAre());
}

TEST(Tar, ReadsLongNames) {
  const std::string name = std::string(150, 'd') + "/" + std::string(120, 'f') + ".txt";
  EXPECT_THAT(list(tar_member("././@LongLink", name + '\0', 'L') + tar_member("short", "gnu") + tar_end()),
              ElementsAre(name + ": gnu"));
  EXPECT_THAT(list(tar_member("pax", pax_record("mtime=1.5") + pax_record("path=" + name), 'x') +
                   tar_member("short", "pax") + tar_member("next.txt", "2") + tar_end()),
              ElementsAre(name + ": pax", "next.txt: 2"));
  std::string header = tar_header("file.txt", octal(1));
  header.replace(345, 6, "folder");
  header.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  header.replace(148, 6, fmt::format("{:06o}", sum));
  EXPECT_THAT(list(header + "u" + std::string(511, '\0') + tar_end()), ElementsAre("folder/file.txt: u"));
}

TEST(Tar, ReadsSizesInThreeEncodings) {
  const std::string body = "abc" + std::string(509, '\0');
  EXPECT_THAT(list(tar_header("n", base256(0, 3)) + body + tar_end()), ElementsAre("n: abc"));
  EXPECT_THAT(
      list(tar_member("pax", pax_record("size=3"), 'x') + tar_header("n", octal(0)) + body + tar_end()),
      ElementsAre("n: abc"));
  EXPECT_THAT(list(tar_header("n", "        3 ") + body + tar_end()), ElementsAre("n: abc"));
}

TEST(Tar, RejectsHostileSizes) {
  const auto error_of_size = [](const std::string& field) {
    return error_of(tar_header("n", field) + tar_end());
  };
  const char* invalid = "a size must be a number of bytes, at least 0";
  EXPECT_THAT(error_of_size(base256(0x7fffffffU, ~0ULL)), HasSubstr(invalid));              // -1
  EXPECT_THAT(error_of_size(base256(0, 1ULL << 63U)), HasSubstr(invalid));                  // 2^63
  EXPECT_THAT(error_of_size(base256(0, (1ULL << 63U) - 1)), HasSubstr("must lie within"));  // 2^63 - 1
  EXPECT_THAT(error_of_size("-0000000001"), HasSubstr(invalid));
  EXPECT_THAT(error_of_size("0000000009"), HasSubstr(invalid));
  EXPECT_THAT(error_of_size("77777777777"),
              HasSubstr("8589934591 bytes of which 1024 are present at byte 0"));
  EXPECT_THAT(error_of(tar_member("x", pax_record("size=99999999999999999999"), 'x') + tar_member("a", "") +
                       tar_end()),
              HasSubstr("pax's size"));
  EXPECT_THAT(error_of(tar_member("x", pax_record("size=9223372036854775807"), 'x') + tar_member("a", "") +
                       tar_end()),
              HasSubstr("must lie within"));
}

TEST(Tar, RejectsTruncation) {
  const std::string whole = tar_member("a.txt", std::string(700, 'a')) + tar_member("b.txt", "b") + tar_end();
  for (std::size_t size = 0; size < whole.size() - 1023; size += 64)
    EXPECT_NE(error_of(whole.substr(0, size)), "") << size;
  EXPECT_THAT(error_of(whole.substr(0, 1000)),
              HasSubstr("700 bytes of which 488 are present at byte 0; rebuild the shard"));
  EXPECT_THAT(error_of(whole.substr(0, 1536)),
              HasSubstr("t.tar: a complete tar file must end with a block of zeros"));
  EXPECT_THAT(list(whole.substr(0, 1536), false), testing::SizeIs(1));
}

TEST(Tar, RejectsOtherFiles) {
  std::string wrong = tar_member("a.txt", "a") + tar_end();
  wrong[3] = 'y';
  EXPECT_THAT(error_of(wrong), HasSubstr("a header's checksum must match"));
  EXPECT_THAT(error_of("\x1f\x8b" + std::string(600, 'x')), HasSubstr("must not be compressed as a whole"));
  EXPECT_THAT(error_of(tar_header("s", octal(0), 'S') + tar_end()), HasSubstr("a sparse file"));
  EXPECT_THAT(error_of(tar_member("g", pax_record("path=x"), 'g') + tar_end()),
              HasSubstr("global pax header"));
  EXPECT_THAT(list(tar_member("g", pax_record("comment=x"), 'g') + tar_member("a", "1") + tar_end()),
              ElementsAre("a: 1"));
  EXPECT_THAT(error_of(tar_member("x", "7 path=xx\n", 'x') + tar_member("a", "") + tar_end()),
              HasSubstr("pax"));
  EXPECT_THAT(error_of(tar_member("x", pax_record("size=-3"), 'x') + tar_member("a", "") + tar_end()),
              HasSubstr("pax's size must be"));
  EXPECT_THAT(error_of(tar_header("L", octal(70000), 'L') + std::string(70144, 'n') + tar_end()),
              HasSubstr("at most 65536"));
  EXPECT_THAT(error_of(tar_member("L", "name", 'L') + tar_end()), HasSubstr("must be followed by a member"));
  std::string many;
  for (int i = 0; i < 12; ++i) many += tar_member("L", "name", 'L');
  EXPECT_THAT(error_of(many + tar_member("a", "") + tar_end()), HasSubstr("at most 8 extension headers"));
}

}  // namespace
}  // namespace colonnade::images
