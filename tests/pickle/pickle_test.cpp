// pickle/read.h and pickle/write.h: pickles written by Python's pickle module, hostile ones, and our own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string>

#include "colonnade/base/error.h"
#include "colonnade/pickle/read.h"
#include "colonnade/pickle/write.h"

namespace colonnade::pickle {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

std::string fault_of(const std::string& bytes) {
  try {
    (void)read(bytes_of(bytes), "FILE");
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

/// OrderedDict(a=1, b=[1, 2.5, None, True, (3, 4)], c={'x': b'hi'}, d={1, 2}, e=-5, f=2**40, g=-2**40) by
/// Python's pickle.dumps in a protocol.
struct Written {
  int protocol;
  const char* hex;
};
const Written kWritten[] = {
    {0,
     "63636f6c6c656374696f6e730a4f726465726564446963740a70300a28745270310a56610a70320a49310a7356620a70330a286c70340a49310a6146322e350a614e614930310a612849330a49340a7470350a617356630a70360a286470370a56780a70380a635f636f646563730a656e636f64650a70390a285668690a7031300a566c6174696e310a7031310a747031320a527031330a737356640a7031340a635f5f6275696c74696e5f5f0a7365740a7031350a28286c7031360a49310a6149320a61747031370a527031380a7356650a7031390a492d350a7356660a7032300a4c313039393531313632373737364c0a7356670a7032310a4c2d313039393531313632373737364c0a732e"},
    {2,
     "800263636f6c6c656374696f6e730a4f726465726564446963740a7100295271012858010000006171024b0158010000006271035d7104284b014740040000000000004e884b034b048671056558010000006371067d71075801000000787108635f636f646563730a656e636f64650a710958020000006869710a58060000006c6174696e31710b86710c52710d73580100000064710e635f5f6275696c74696e5f5f0a7365740a710f5d7110284b014b026585711152711258010000006571134afbffffff58010000006671148a0600000000000158010000006771158a060000000000ff752e"},
    {4,
     "80049582000000000000008c0b636f6c6c656374696f6e73948c0b4f72646572656444696374949394295294288c0161944b018c0162945d94284b014740040000000000004e884b034b048694658c0163947d948c0178944302686994738c0164948f94284b014b02908c0165944afbffffff8c0166948a060000000000018c0167948a060000000000ff752e"},
    {5,
     "80059582000000000000008c0b636f6c6c656374696f6e73948c0b4f72646572656444696374949394295294288c0161944b018c0162945d94284b014740040000000000004e884b034b048694658c0163947d948c0178944302686994738c0164948f94284b014b02908c0165944afbffffff8c0166948a060000000000018c0167948a060000000000ff752e"},
};

TEST(Pickle, ReadsWhatPythonWritesInEveryProtocol) {
  for (const Written& written : kWritten) {
    SCOPED_TRACE(written.protocol);
    const Document document = read(bytes_of(from_hex(written.hex)), "FILE");
    const Value* root = document.root;
    ASSERT_TRUE(root->is(Kind::kDict));
    EXPECT_EQ(find(root, "a")->integer, 1);
    const Value* list = find(root, "b");
    ASSERT_EQ(list->items.size(), 5U);
    EXPECT_EQ(list->items[1]->real, 2.5);
    EXPECT_TRUE(list->items[2]->is(Kind::kNone));
    EXPECT_TRUE(list->items[3]->is(Kind::kBool) && list->items[3]->integer == 1);
    std::vector<std::int64_t> pair;
    ASSERT_TRUE(read_integers(list->items[4], pair));
    EXPECT_EQ(pair, (std::vector<std::int64_t>{3, 4}));
    EXPECT_EQ(find(find(root, "c"), "x")->text, "hi");
    EXPECT_EQ(find(root, "d")->items.size(), 2U);
    EXPECT_EQ(find(root, "e")->integer, -5);
    EXPECT_EQ(find(root, "f")->integer, std::int64_t{1} << 40);
    EXPECT_EQ(find(root, "g")->integer, -(std::int64_t{1} << 40));
  }
}

TEST(Pickle, AForeignClassIsNamedAndNothingIsExecuted) {
  // os.system("touch owned"), as pickle.dumps writes it for a class with __reduce__.
  EXPECT_THAT(
      fault_of("\x80\x02"
               "cposix\nsystem\nX\x0b" +
               std::string("\0\0\0touch owned", 14) + "\x85R."),
      HasSubstr("FILE: a pickle must name only classes of checkpoints; got posix.system; nothing of it"));
  EXPECT_THAT(fault_of("\x80\x04\x8c\x08"
                       "builtins\x8c\x04"
                       "eval\x93)R."),
              HasSubstr("got builtins.eval"));
}

TEST(Pickle, TruncatedAndDamagedPicklesAreErrors) {
  for (const Written& written : kWritten) {
    const std::string bytes = from_hex(written.hex);
    for (std::size_t length = 0; length < bytes.size(); ++length)
      EXPECT_NE(fault_of(bytes.substr(0, length)), "") << written.protocol << " at " << length;
  }
  EXPECT_THAT(fault_of("\x80\x02X\xff\xff\xff\x7f."), HasSubstr("an end in the middle of a value"));
  EXPECT_THAT(fault_of("\x80\x02\x95."), HasSubstr("an end in the middle"));
  EXPECT_THAT(fault_of("\x80\x02h\x05."), HasSubstr("a reference to a missing value"));
  EXPECT_THAT(fault_of("\x80\x02t."), HasSubstr("a list without its begin"));
  EXPECT_THAT(fault_of("\x80\x02"
                       "0."),
              HasSubstr("missing on the stack"));
  EXPECT_THAT(fault_of("\x80\x02\xff."), HasSubstr("the unknown opcode 0xff"));
  EXPECT_THAT(fault_of("\x80\x09."), HasSubstr("a protocol newer than 5"));
}

TEST(Pickle, ALargeValueThatManyCallsCopyIsAnError) {
  std::string bytes = "\x80\x02(";
  for (int i = 0; i < 1000; ++i) bytes += "K\x01";
  bytes += "t\x85q" + std::string("\0", 1) + "0";
  for (int i = 0; i < 1000; ++i) bytes += "ctorch\nSize\nh" + std::string("\0", 1) + "R0";
  EXPECT_THAT(fault_of(bytes + "N."), HasSubstr("more elements than its bytes can hold"));
}

TEST(Pickle, AListThatContainsItselfIsRead) {
  const Document document =
      read(bytes_of("\x80\x02]q" + std::string("\0", 1) + "h" + std::string("\0", 1) + "a."), "FILE");
  EXPECT_EQ(document.root->items.at(0), document.root);
}

TEST(Pickle, ReadsWhatItWrites) {
  Writer w;
  w.begin_dict();
  w.text("size"), w.global("torch", "Size"), w.begin_tuple(), w.integers({3, -1, std::int64_t{1} << 33}),
      w.end_tuple();
  w.reduce();
  w.text("rate"), w.real(-0.125);
  w.text("object"), w.global("argparse", "Namespace"), w.begin_tuple(), w.end_tuple(), w.new_object();
  w.begin_dict(), w.text("lr"), w.none(), w.text("on"), w.boolean(true), w.end_dict(), w.build();
  w.text("list"), w.begin_list(), w.integer(7), w.text("z"), w.end_list();
  w.end_dict();
  const std::string bytes = std::move(w).finish();
  const Document document = read(bytes_of(bytes), "FILE");
  std::vector<std::int64_t> size;
  ASSERT_TRUE(read_integers(find(document.root, "size"), size));
  EXPECT_EQ(size, (std::vector<std::int64_t>{3, -1, std::int64_t{1} << 33}));
  EXPECT_EQ(find(document.root, "rate")->real, -0.125);
  const Value* object = find(document.root, "object");
  EXPECT_TRUE(object->is_a("argparse.Namespace"));
  EXPECT_TRUE(attribute(object, "lr")->is(Kind::kNone));
  EXPECT_EQ(attribute(object, "on")->integer, 1);
  EXPECT_EQ(find(document.root, "list")->items.at(1)->text, "z");
}

}  // namespace
}  // namespace colonnade::pickle
