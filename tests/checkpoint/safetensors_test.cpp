// Safetensors files: round trips, files of other programs, and malicious bytes.
#include "colonnade/checkpoint/safetensors.h"

#include <gmock/gmock.h>

#include <cstring>
#include <random>

#include "checkpoint/fixtures.h"
#include "colonnade/base/error.h"
#include "support/vectors.h"

namespace colonnade::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::TempFolder;
using testing::HasSubstr;

std::string file_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string text(sizeof length, '\0');
  std::memcpy(text.data(), &length, sizeof length);
  return text + header + std::string(data_bytes, '\1');
}

SafetensorsHeader parse(const std::string& text) {
  return parse_safetensors(std::as_bytes(std::span(text)), "x.safetensors");
}

TEST(Safetensors, EveryDtypeRoundTripsBitwiseAndAligned) {
  const TempFolder folder;
  std::map<std::string, at::Tensor> tensors;
  const std::vector<at::ScalarType> types{at::kDouble,
                                          at::kFloat,
                                          at::kHalf,
                                          at::kBFloat16,
                                          at::kLong,
                                          at::kInt,
                                          at::kShort,
                                          at::kChar,
                                          at::kByte,
                                          at::kBool,
                                          at::kUInt16,
                                          at::kUInt32,
                                          at::kUInt64,
                                          at::kFloat8_e4m3fn,
                                          at::kFloat8_e5m2,
                                          at::kFloat8_e8m0fnu,
                                          at::kFloat8_e4m3fnuz,
                                          at::kFloat8_e5m2fnuz,
                                          at::kComplexFloat};
  for (const at::ScalarType type : types)
    tensors[std::string(dtype_name(type))] = at::arange(0, 15, at::kDouble).reshape({3, 5}).to(type);
  tensors["bool"] = at::arange(0, 3).remainder(2).to(at::kBool);
  tensors["scalar"] = at::scalar_tensor(2.5);
  tensors["empty"] = at::empty({0, 4});
  tensors["strided"] = at::arange(0, 12, at::kFloat).reshape({3, 4}).t();
  write_safetensors(folder.path() / "a.safetensors", tensors);

  const SafetensorsFile file(folder.path() / "a.safetensors");
  EXPECT_EQ(file.metadata(), (Metadata{{"format", "pt"}}));
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor back = file.view(name);
    ASSERT_EQ(back.scalar_type(), tensor.scalar_type()) << name;
    ASSERT_EQ(back.sizes(), tensor.sizes()) << name;
    EXPECT_EQ(std::memcmp(back.const_data_ptr(), tensor.contiguous().const_data_ptr(), back.nbytes()), 0)
        << name;
    EXPECT_EQ(file.info(name).offset % tensor.element_size(), 0) << name;
  }
}

// Values read with Python's safetensors 0.8 from the same files.
TEST(Safetensors, ReadsHuggingFaceFiles) {
  const fs::path hf = fs::path(colonnade::test::vectors()) / "hf";
  const SafetensorsFile llama(hf / "llama/model.safetensors");
  EXPECT_EQ(llama.tensors().size(), 21);
  EXPECT_EQ(llama.info("model.layers.1.self_attn.v_proj.weight").shape, (Sizes{32, 64}));
  const at::Tensor head = llama.view("lm_head.weight");
  EXPECT_EQ(head.sizes().vec(), (Sizes{320, 64}));
  EXPECT_EQ(head[0][1].item<float>(), 0.0130776921287179F);
  EXPECT_NEAR(head.to(at::kDouble).sum().item<double>(), -17.02104344220652, 1e-9);
  EXPECT_NEAR(llama.view("model.norm.weight").to(at::kDouble).sum().item<double>(), 63.38558608293533, 1e-9);
  const SafetensorsFile gpt2(hf / "gpt2/model.safetensors");
  EXPECT_EQ(gpt2.tensors().size(), 28);
  EXPECT_NEAR(gpt2.view("transformer.wte.weight").to(at::kDouble).sum().item<double>(), 12.822768682326569,
              1e-9);
}

TEST(Safetensors, ViewOutlivesItsFileAndReadsUnalignedData) {
  const TempFolder folder;
  const std::string header =
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
  std::string text = file_of(header, 9);
  const float two[2] = {1.5F, -2.0F};
  std::memcpy(text.data() + text.size() - 8, two, sizeof two);
  test::write_raw(folder.path() / "u.safetensors", text);
  at::Tensor view;
  {
    const SafetensorsFile file(folder.path() / "u.safetensors");
    view = file.view("b");
  }
  EXPECT_EQ(view[0].item<float>(), 1.5F);
  EXPECT_EQ(view[1].item<float>(), -2.0F);
}

TEST(Safetensors, EveryBrokenRuleIsReported) {
  const auto tensor = [](const std::string& body) { return R"({"t":{)" + body + "}}"; };
  const std::string good = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  EXPECT_EQ(parse(file_of(tensor(good), 8)).tensors.size(), 1);
  const std::vector<std::tuple<std::string, std::size_t, std::string>> bad{
      {tensor(good), 7, "inside 7 bytes"},
      {tensor(good), 9, "cover 9 bytes"},
      {tensor(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), 8, "bytes of its shape"},
      {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), 8, "inside 8 bytes"},
      {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[4,12])"), 12,
       "must begin where the one before ends"},
      {tensor(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0])"), 0,
       "bytes of its shape"},
      {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615])"), 8, "above 2^63"},
      {tensor(R"("dtype":"F33","shape":[2],"data_offsets":[0,8])"), 8, "unknown dtype 'F33'"},
      {tensor(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), 8, "negative"},
      {tensor(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), 8, "not an integer"},
      {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), 8, "two data_offsets"},
      {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])"), 8, "two data_offsets"},
      {tensor(R"("dtype":"F32","shape":[2])"), 8, "must have dtype, shape and data_offsets"},
      {tensor(good + R"(,"x":1)"), 8, "unexpected number"},
      {tensor(good + R"(,"dtype":"F32")"), 8, "duplicate string 'dtype'"},
      {tensor(good + R"(,"x":{})"), 8, "unexpected object"},
      {tensor(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])"), 8, "unexpected list"},
      {R"({"t":{)" + good + R"(},"t":{)" + good + "}}", 8, "must begin where the one before ends"},
      {R"({"t":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"t":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
       0, "duplicate tensor 't'"},
      {R"({"__metadata__":{"a":1}})", 0, "unexpected number"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "duplicate __metadata__"},
      {R"([1])", 0, "does not begin with '{'"},
      {R"({"t":)", 0, "invalid JSON"},
      {R"({"t":null})", 0, "a null"},
      {std::string(100000, '{'), 0, "invalid JSON"},
      {"", 0, "does not begin with '{'"},
  };
  for (const auto& [header, bytes, message] : bad)
    EXPECT_THAT(message_of([&, &h = header, &b = bytes] { parse(file_of(h, b)); }), HasSubstr(message))
        << header.substr(0, 200);
  EXPECT_THAT(message_of([] { parse("1234567"); }), HasSubstr("7 bytes"));
  EXPECT_THAT(message_of([] { parse(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)); }),
              HasSubstr("above the limit of 100000000"));
  EXPECT_THAT(message_of([] { parse(std::string("\x64\0\0\0\0\0\0\0{}", 10)); }),
              HasSubstr("in a file of 10"));
}

// Every changed file is either rejected with DataError or still obeys every rule.
TEST(Safetensors, ChangedBytesAreRejectedOrHarmless) {
  const TempFolder folder;
  write_safetensors(folder.path() / "a.safetensors",
                    {{"alpha", at::ones({3, 4})}, {"beta", at::ones({5}, at::kLong)}});
  const std::string good = read_file(folder.path() / "a.safetensors");
  std::mt19937 random(7);
  int refused = 0;
  constexpr int kTries = 20000;
  for (int i = 0; i < kTries; ++i) {
    std::string text = good;
    for (std::uint32_t n = 0; n <= random() % 4; ++n)
      text[random() % 200] = static_cast<char>("0123456789{}[],:\"FI"[random() % 19]);
    if (i % 3 == 0) text.resize(random() % text.size());
    try {
      for (const auto& [name, info] : parse(text).tensors) ASSERT_LE(info.offset + info.bytes, text.size());
    } catch (const DataError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, kTries / 2);
}

TEST(Safetensors, HeaderWithManyTensorsIsParsedInLinearTime) {
  std::string header = "{";
  for (int i = 0; i < 100000; ++i)
    header += fmt::format(R"({}"t{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})", i == 0 ? "" : ",",
                          i, i, i + 1);
  EXPECT_EQ(parse(file_of(header + "}", 100000)).tensors.size(), 100000);
}

TEST(Safetensors, WriterEnforcesTheHeader) {
  const TempFolder folder;
  const fs::path path = folder.path() / "w.safetensors";
  EXPECT_THAT(message_of([&] {
                SafetensorsWriter(path, {{"b", at::kByte, {1}}, {"a", at::kFloat, {1}}});
              }),
              HasSubstr("file order"));
  SafetensorsWriter writer(path, {{"a", at::kFloat, {2}}});
  EXPECT_THAT(message_of([&] { writer.write(at::ones({3})); }), HasSubstr("'a' must be F32 of [2]"));
  EXPECT_THAT(message_of([&] {
                SafetensorsWriter(path, {{"a", at::kFloat, {2}}}).finish();
              }),
              HasSubstr("must get the 1 tensors of its header; got 0"));
  EXPECT_THAT(message_of([&] { SafetensorsWriter("/nowhere/x", {}); }), HasSubstr("No such file"));
}

TEST(Safetensors, ChecksumIsThatOfTheFile) {
  const TempFolder folder;
  SafetensorsWriter writer(folder.path() / "c.safetensors", {{"a", at::kFloat, {1000}}});
  writer.write(at::randn({1000}));
  EXPECT_EQ(writer.finish(), file_checksum(folder.path() / "c.safetensors"));
  // XXH3-128 of empty input (xxhash 0.8 documentation).
  EXPECT_EQ(checksum_of(""), "99aa06d3014798d86001c324468d497f");
}

}  // namespace
}  // namespace colonnade::checkpoint
