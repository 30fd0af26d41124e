// File types by magic bytes; Git LFS pointers are rejected by every read.
#include "colonnade/base/file_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"

namespace colonnade {
namespace {

using namespace std::string_view_literals;
using testing::AllOf;
using testing::HasSubstr;

const std::string kPointer =
    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab\nsize 440449768\n";

TEST(FileKind, IsRecognizedByMagicBytes) {
  EXPECT_EQ(file_kind(kPointer), "a Git LFS pointer");
  EXPECT_EQ(file_kind("PK\x03\x04rest"), "a PyTorch pickle or another zip archive");
  EXPECT_EQ(file_kind("\x80\x02\x8a\nl\xfc\x9c"sv), "a PyTorch pickle");
  EXPECT_EQ(file_kind("GGUF\x03\0\0\0"sv), "a GGUF file");
  EXPECT_EQ(file_kind("\n<!DOCTYPE html>\n<html>"), "an HTML page");
  EXPECT_EQ(file_kind("<HTML lang=en>"), "an HTML page");
  EXPECT_EQ(file_kind(""), "an empty file");
  EXPECT_EQ(file_kind("# settings\n\n[model]\nhidden = 4\n"), "a TOML or INI file");
  EXPECT_EQ(file_kind("num_layers = 4\n"), "a TOML or INI file");
  EXPECT_EQ(file_kind("[[layers]]\n"), "a TOML or INI file");
}

TEST(FileKind, SafetensorsWhoseLengthLooksLikeAPickleIsRecognized) {
  EXPECT_EQ(file_kind("\x80\x02\0\0\0\0\0\0{\"a\""sv), "a safetensors file");
}

TEST(FileKind, JsonYamlAndTextAreUnrecognized) {
  for (const char* text :
       {"{\"model_type\": \"llama\"}", "[1, 2]", "[\"a\"]", "[", "num_layers: 4\n", "# only\n", "- a\n",
        "num_layers: [1, 2\nhidden_size: 64\n", "1234567", "key: a = b\n"})
    EXPECT_EQ(file_kind(text), "") << text;
}

TEST(FileKind, AnLfsPointerIsRejectedOnRead) {
  const auto file = std::filesystem::path(testing::TempDir()) / "file_kind_pointer.idx";
  std::ofstream(file) << kPointer;
  const auto message =
      AllOf(HasSubstr(file.string()), HasSubstr("got a Git LFS pointer"), HasSubstr("git lfs pull"));
  EXPECT_THAT([&] { read_file(file); }, testing::ThrowsMessage<DataError>(message));
  EXPECT_THAT([&] { MappedFile map(file); }, testing::ThrowsMessage<DataError>(message));
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace colonnade
