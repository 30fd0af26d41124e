// Indexed data sets: files identical to Megatron's, all types, and errors for damaged files.
#include "colonnade/data/indexed/indexed_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <fstream>
#include <memory>

#include "colonnade/base/error.h"
#include "support/files.h"

namespace colonnade::data {
namespace {

using ::testing::HasSubstr;
using Ints = std::vector<std::int64_t>;

void write(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

void expect_same_files(const std::string& prefix, const std::string& reference) {
  EXPECT_TRUE(read_file(prefix + ".bin") == read_file(test::vector_path(reference) + ".bin")) << reference;
  EXPECT_TRUE(read_file(prefix + ".idx") == read_file(test::vector_path(reference) + ".idx")) << reference;
}

TEST(IndexedDataset, WritesEveryTypeLikeMegatron) {
  const test::TempFolder folder;
  for (int code = 1; code <= 8; ++code) {
    const auto type = static_cast<TokenType>(code);
    const std::string prefix = folder / to_string(type);
    IndexedDatasetBuilder builder(prefix, type);
    builder.add_document(std::vector<std::int32_t>{0, 1, 2, 3, 4}, std::vector<std::int32_t>{2, 3});
    builder.add_document(std::vector<std::int32_t>{0, 7, 14, 21}, std::vector<std::int32_t>{4});
    builder.finalize();
    expect_same_files(prefix, "indexed/dtypes/" + to_string(type));
    const IndexedDataset read(prefix);
    EXPECT_EQ(read.type(), type);
    EXPECT_EQ(read.num_documents(), 2);
    EXPECT_EQ(read.num_tokens(), 9);
    Ints tokens(2);
    if (type == TokenType::kFloat32 || type == TokenType::kFloat64) {
      EXPECT_THROW(read.tokens(2, 1, tokens), DataError);
    } else {
      read.tokens(2, 1, tokens);
      EXPECT_EQ(tokens, (Ints{7, 14}));
    }
  }
}

TEST(IndexedDataset, WritesTheBytesOfTheFormatSpecification) {
  const test::TempFolder folder;
  IndexedDatasetBuilder builder(folder / "d", TokenType::kUint16);
  builder.add_document(std::vector<std::int32_t>{1, 2, 3}, std::vector<std::int32_t>{3});
  builder.add_document(std::vector<std::int32_t>{4, 5, 6}, std::vector<std::int32_t>{2, 1});
  builder.finalize();
  EXPECT_EQ(read_file(folder / "d.bin"), std::string("\1\0\2\0\3\0\4\0\5\0\6\0", 12));
  std::string expected("MMIDIDX\0\0\1\0\0\0\0\0\0\0\x08\3\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0", 34);
  expected += std::string("\3\0\0\0\2\0\0\0\1\0\0\0", 12);
  for (const char value : {0, 6, 10, 0, 1, 3}) expected += std::string(1, value) + std::string(7, '\0');
  EXPECT_EQ(read_file(folder / "d.idx"), expected);
  EXPECT_EQ(folder.num_files(), 2U);
}

TEST(IndexedDataset, ReadsLikeMegatron) {
  const auto expected = test::read_tensors("indexed/gpt_uint16.read.safetensors");
  const IndexedDataset data(test::vector_path("indexed/gpt_uint16"));
  ASSERT_EQ(data.num_documents() + 1, static_cast<std::int64_t>(expected.at("document_indices").size()));
  for (std::int64_t d = 0; d <= data.num_documents(); ++d)
    EXPECT_EQ(data.document_start(d), expected.at("document_indices")[static_cast<std::size_t>(d)]);
  for (std::int64_t i = 0; i < data.num_sequences(); ++i)
    EXPECT_EQ(data.length(i), expected.at("sequence_lengths")[static_cast<std::size_t>(i)]);
  for (const int item : {0, 1, 2, 17, 1096}) {
    Ints tokens(static_cast<std::size_t>(data.length(item)));
    data.tokens(item, 0, tokens);
    EXPECT_EQ(std::vector<double>(tokens.begin(), tokens.end()), expected.at(fmt::format("item{}", item)));
  }
  Ints part(5);
  data.tokens(17, 2, part);
  EXPECT_EQ(std::vector<double>(part.begin(), part.end()), expected.at("get_17_2_5"));
}

TEST(IndexedDataset, MergesLikeMegatron) {
  const test::TempFolder folder;
  IndexedDatasetBuilder builder(folder / "merged", TokenType::kUint16);
  builder.add_index(IndexedDataset(test::vector_path("indexed/gpt2_uint16")));
  builder.add_index(IndexedDataset(test::vector_path("indexed/bert_uint16")));
  EXPECT_THROW(builder.add_index(IndexedDataset(test::vector_path("indexed/gpt_int32"))), DataError);
  builder.finalize();
  expect_same_files(folder / "merged", "indexed/merged_uint16");
}

TEST(IndexedDataset, StoresTheModesOfMultimodalData) {
  const test::TempFolder folder;
  IndexedDatasetBuilder builder(folder / "m", TokenType::kInt32, true);
  for (std::int32_t k = 0; k < 5; ++k) {
    for (std::int32_t j = 0; j <= k; ++j) {
      std::vector<std::int32_t> tokens;
      for (std::int32_t t = 0; t < 3 * j + k; ++t) tokens.push_back(t + 100 * k);
      builder.add_sequence(std::as_bytes(std::span(tokens)), static_cast<std::int8_t>(j % 2));
    }
    builder.end_document();
  }
  builder.finalize();
  expect_same_files(folder / "m", "indexed/multimodal_int32");
  EXPECT_EQ(IndexedDataset(folder / "m", true).mode(2), 1);
  EXPECT_EQ(IndexedDataset(folder / "m").num_sequences(), 15);  // also readable as text-only data
  EXPECT_THROW(IndexedDataset(test::vector_path("indexed/gpt_int32"), true), DataError);
}

TEST(IndexedDataset, RemovesTemporaryFilesIfNotFinalized) {
  const test::TempFolder folder;
  {
    IndexedDatasetBuilder builder(folder / "d", TokenType::kUint8);
    builder.add_document(std::vector<std::int32_t>{1, 2}, std::vector<std::int32_t>{2});
    EXPECT_THROW(builder.add_document(std::vector<std::int32_t>{256}, std::vector<std::int32_t>{1}),
                 DataError);
  }
  EXPECT_EQ(folder.num_files(), 0U);
}

TEST(IndexedDataset, ReadsBackWrittenDocuments) {
  const test::TempFolder folder;
  const bool holds = rc::check("documents of any shape survive", [&folder] {
    const auto documents = *rc::gen::container<std::vector<std::vector<std::vector<std::uint16_t>>>>(
        rc::gen::container<std::vector<std::vector<std::uint16_t>>>(
            rc::gen::arbitrary<std::vector<std::uint16_t>>()));
    IndexedDatasetBuilder builder(folder / "d", TokenType::kUint16);
    for (const auto& document : documents) {
      for (const auto& sequence : document) builder.add_sequence(std::as_bytes(std::span(sequence)));
      builder.end_document();
    }
    builder.finalize();
    const IndexedDataset read(folder / "d");
    RC_ASSERT(read.num_documents() == static_cast<std::int64_t>(documents.size()));
    std::int64_t sequence = 0;
    for (std::size_t d = 0; d < documents.size(); ++d) {
      RC_ASSERT(read.document_start(static_cast<std::int64_t>(d)) == sequence);
      for (const auto& expected : documents[d]) {
        Ints tokens(static_cast<std::size_t>(read.length(sequence)));
        read.tokens(sequence++, 0, tokens);
        RC_ASSERT(std::vector<std::uint16_t>(tokens.begin(), tokens.end()) == expected);
      }
    }
  });
  EXPECT_TRUE(holds);
}

TEST(IndexedDataset, RejectsFilesTruncatedAtAnyByte) {
  const test::TempFolder folder;
  for (const std::string part : {".idx", ".bin"}) {
    const std::string other = part == ".idx" ? ".bin" : ".idx";
    const std::string whole = read_file(test::vector_path("indexed/dtypes/uint16") + part);
    write(folder / ("d" + other), read_file(test::vector_path("indexed/dtypes/uint16") + other));
    for (std::size_t size = 0; size < whole.size(); ++size) {
      write(folder / ("d" + part), whole.substr(0, size));
      EXPECT_THROW(IndexedDataset(folder / "d"), DataError) << part << " truncated at " << size;
    }
    write(folder / ("d" + part), whole + "x");
    EXPECT_THROW(IndexedDataset(folder / "d"), DataError) << part << " one byte longer";
    write(folder / ("d" + part), whole);
    EXPECT_NO_THROW(IndexedDataset(folder / "d"));
  }
}

TEST(IndexedDataset, ChangedBytesAreRejectedOrHarmless) {
  const test::TempFolder folder;
  const std::string whole = read_file(test::vector_path("indexed/dtypes/int32.idx"));
  write(folder / "d.bin", read_file(test::vector_path("indexed/dtypes/int32.bin")));
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ flip);
      write(folder / "d.idx", changed);
      try {
        const IndexedDataset data(folder / "d");
        for (std::int64_t i = 0; i < data.num_sequences(); ++i) {
          Ints tokens(static_cast<std::size_t>(data.length(i)));
          data.tokens(i, 0, tokens);
        }
      } catch (const DataError&) {
      }
    }
  }
}

TEST(IndexedDataset, ReportsDamage) {
  const test::TempFolder folder;
  EXPECT_THAT(test::message_of<DataError>([&] { IndexedDataset(folder / "none"); }),
              HasSubstr("no such file"));
  std::string idx = read_file(test::vector_path("indexed/dtypes/int32.idx"));
  write(folder / "d.bin", read_file(test::vector_path("indexed/dtypes/int32.bin")));
  const auto message = [&](std::size_t at, std::string_view bytes) {
    std::string changed = idx;
    changed.replace(at, bytes.size(), bytes);
    write(folder / "d.idx", changed);
    return test::message_of<DataError>([&] { IndexedDataset(folder / "d"); });
  };
  EXPECT_THAT(message(0, "X"), HasSubstr("not the index of a Megatron data set"));
  EXPECT_THAT(message(9, "\2"), HasSubstr("version must be 1; got 2"));
  EXPECT_THAT(message(17, "\x09"), HasSubstr("type code must be 1 to 8; got 9"));
  EXPECT_THAT(message(18, "\xff\xff\xff\xff\xff\xff\xff\xff"), HasSubstr("18446744073709551615 sequences"));
  EXPECT_THAT(message(34, "\xff\xff\xff\xff"), HasSubstr("sequence 0"));
  EXPECT_THAT(message(46, "\xff\xff\xff\xff\xff\xff\xff\x7f"), HasSubstr("at byte 9223372036854775807"));
  EXPECT_THAT(message(idx.size() - 8, "\1"), HasSubstr("document starts must ascend"));
}

}  // namespace
}  // namespace colonnade::data
