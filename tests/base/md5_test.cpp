// MD5 against the test vectors of RFC 1321 and at message lengths around the padding boundary.
#include "colonnade/base/md5.h"

#include <gtest/gtest.h>

namespace colonnade {
namespace {

TEST(Md5, MatchesTheRfcTestVectors) {
  EXPECT_EQ(md5_hex(""), "d41d8cd98f00b204e9800998ecf8427e");
  EXPECT_EQ(md5_hex("abc"), "900150983cd24fb0d6963f7d28e17f72");
  EXPECT_EQ(md5_hex("abcdefghijklmnopqrstuvwxyz"), "c3fcd3d76192e4007dfb496cca67e13b");
  EXPECT_EQ(md5_hex("12345678901234567890123456789012345678901234567890123456789012345678901234567890"),
            "57edf4a22be3c955ac49da2e2107b67a");
}

TEST(Md5, PadsMessagesOfEveryLength) {
  EXPECT_EQ(md5_hex(std::string(55, 'x')), "04364420e25c512fd958a70738aa8f72");
  EXPECT_EQ(md5_hex(std::string(56, 'x')), "668a72d5ba17f08e62dabcafad6db14b");
  EXPECT_EQ(md5_hex(std::string(63, 'x')), "7dc2ca208106a2f703567bdff99d8981");
  EXPECT_EQ(md5_hex(std::string(64, 'x')), "c1bb4f81d892b2d57947682aeb252456");
  EXPECT_EQ(md5_hex(std::string(119, 'x')), "ab347a5f68c8a443cfcddc633f12c24f");
  EXPECT_EQ(md5_hex(std::string(120, 'x')), "fb98667f98096de92620b64f46e1c5b5");
  EXPECT_EQ(md5_hex(std::string(1000, 'x')), "398533d48111e9f664b1f64cb10c4b63");
}

}  // namespace
}  // namespace colonnade
