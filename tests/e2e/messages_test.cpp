// Messages: errors of libraries, names with terminal escapes, lost output.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "program.h"

namespace colonnade::e2e {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// `text` of at most 127 bytes as field `number` of a protocol buffer.
std::string proto_field(int number, const std::string& text) {
  return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(text.size())} + text;
}

TEST(Messages, ErrorsOfLibrariesHaveTheCommonForm) {
  const TempFolder folder;
  const std::string unknown = proto_field(1, "<unk>") + std::string("\x18\x02", 2);  // its type
  write_text(folder / "empty_piece.model", proto_field(1, unknown) + proto_field(1, proto_field(1, "")));
  const Result result = run(colonnade({"tokenizer", "encode", "--tokenizer-type", "SentencePieceTokenizer",
                                       "--tokenizer-model", folder / "empty_piece.model"}));
  EXPECT_EQ(result.code, 3) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("empty_piece.model must be a SentencePiece .model file; got '"),
                                 HasSubstr("piece must not be empty'"), Not(HasSubstr(".cc("))));
  fs::create_directory(folder / "hf");
  write_text(folder / "hf/config.json", "{}");
  const auto said = [&](const std::string& index) {
    write_text(folder / "hf/model.safetensors.index.json", index);
    const Result of_index = run(colonnade({"checkpoint", "inspect", folder / "hf"}));
    EXPECT_EQ(of_index.code, 3) << of_index.text;
    EXPECT_THAT(of_index.text, AllOf(HasSubstr("index.json must "), Not(HasSubstr("json.exception")),
                                     Not(HasSubstr(".cc("))));
    return of_index.text;
  };
  EXPECT_THAT(said("{\n \"weight_map\": {]"), HasSubstr("line 2"));
  EXPECT_THAT(said("{\"weight_map\": {\"a\": 3}}"), HasSubstr("type must be string"));
  EXPECT_THAT(said("{}"), HasSubstr("'weight_map'"));
}

TEST(Messages, TerminalEscapesInNamesAreEscaped) {
  const TempFolder folder;
  const std::string header =
      R"({"a\u0000b\u001b[2J": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}})";
  std::string file(sizeof(std::uint64_t), '\0');
  file[0] = static_cast<char>(header.size());
  fs::create_directory(folder / "hf");
  write_text(folder / "hf/config.json", "{}");
  write_text(folder / "hf/model.safetensors", file + header + "0000");
  const Result result = run(colonnade({"checkpoint", "inspect", folder / "hf"}));
  EXPECT_EQ(result.code, 3) << result.text;
  EXPECT_THAT(result.text, AllOf(HasSubstr("a\\x00b\\x1b[2J"), HasSubstr("F99"), Not(HasSubstr("\x1b"))))
      << "the message is complete";
}

TEST(Messages, LostOutputIsAnError) {
  const TempFolder folder;
  for (const char* little_or_much : {"--version", "help --markdown"}) {
    const Result full = shell(folder, std::string("colonnade ") + little_or_much + " > /dev/full");
    EXPECT_EQ(full.code, 1) << full.text;
    EXPECT_THAT(full.text, HasSubstr("standard output must be writable; got No space left on device"));
  }
  const Result device = shell(folder, "colonnade checkpoint verify . --json /dev/full");
  EXPECT_EQ(device.code, 2) << device.text;
  EXPECT_THAT(device.text, HasSubstr("--json must name a file that can be written"));
  const Result longest = run(
      colonnade({"checkpoint", "verify", ".", "--json", folder / std::string(250, 'a')}), {}, folder.path());
  EXPECT_EQ(longest.code, 2) << longest.text;
  EXPECT_THAT(longest.text, HasSubstr("File name too long")) << "like the file that is written first";
  for (const auto& entry : fs::directory_iterator(folder.path()))
    EXPECT_EQ(entry.path().filename(), "colonnade") << "no partial file";
}

}  // namespace
}  // namespace colonnade::e2e
