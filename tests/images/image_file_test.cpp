// JPEG and PNG decoding against Pillow; corrupt, truncated and unsupported files.
#include "colonnade/images/image_file.h"

#include <gmock/gmock.h>

#include <random>

#include "colonnade/base/error.h"
#include "images/image_vectors.h"

namespace colonnade::images {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kAnySize = 1 << 30;

TEST(ImageFile, MatchesPillow) {
  const auto expected = test::read_tensors("images/expected.safetensors");
  int compared = 0;
  for (const std::string& name : image_names()) {
    const auto found = expected.find(name + ".rgb");
    if (found == expected.end()) continue;
    const RgbImage image = read_image(image_bytes(name), kAnySize);
    EXPECT_TRUE(std::ranges::equal(image.rgb, found->second)) << name;
    EXPECT_EQ(image_size(image_bytes(name)).width, image.width);
    ++compared;
  }
  EXPECT_EQ(compared, 23);
}

TEST(ImageFile, RejectsTruncationAnywhere) {
  for (const std::string& name : image_names()) {
    const std::string bytes = image_bytes(name);
    // The last chunk of a PNG, and the last bytes of a JPEG, hold no pixels.
    const std::size_t end = bytes.size() - (name.ends_with(".png") ? 17 : 40);
    for (std::size_t size = 0; size < end; size += std::max<std::size_t>(1, end / 40))
      EXPECT_THROW((void)read_image(std::span(bytes).first(size), kAnySize), DataError)
          << name << " " << size;
  }
}

TEST(ImageFile, SurvivesCorruption) {
  std::mt19937 random(1);
  int rejected = 0, decoded = 0;
  for (const std::string& name : image_names()) {
    if (name == "large.jpg") continue;
    for (int i = 0; i < 60; ++i) {
      std::string bytes = image_bytes(name);
      for (int k = 0; k < 3; ++k) bytes[random() % bytes.size()] = static_cast<char>(random());
      try {
        (void)read_image(bytes, 1 << 20);
        ++decoded;
      } catch (const DataError&) {
        ++rejected;
      }
    }
  }
  EXPECT_GT(rejected, 100);
  EXPECT_GT(decoded, 100);
}

TEST(ImageFile, NamesUnsupportedFormats) {
  const auto message = [](std::string bytes) {
    bytes.resize(64, '\0');
    return test::message_of<DataError>([&] { (void)read_image(bytes, kAnySize); });
  };
  EXPECT_THAT(message("GIF89a"), HasSubstr("got GIF; convert"));
  EXPECT_THAT(message("RIFF\1\2\3\4WEBPVP8 "), HasSubstr("got WebP"));
  EXPECT_THAT(message("II*"), HasSubstr("got TIFF"));
  EXPECT_THAT(message("hello"), HasSubstr("got something else"));
  EXPECT_THAT(test::message_of<DataError>([] { (void)read_image({}, kAnySize); }), HasSubstr("got no bytes"));
}

/// E.g. a PNG of 3 kB that claims 50,000 x 40,000 pixels: the header is checked before anything is decoded.
TEST(ImageFile, RejectsTooManyPixelsBeforeAllocating) {
  EXPECT_THAT(test::message_of<DataError>([] { (void)read_image(image_bytes("rgb.png"), 67 * 45 - 1); }),
              HasSubstr("at most 3014 pixels; got 67 x 45; raise --max-image-pixels"));
  EXPECT_NO_THROW((void)read_image(image_bytes("rgb.png"), 67 * 45));
  std::string jpeg = image_bytes("grey.jpg");
  const std::size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\xff\xdc\xff\xdc");
  EXPECT_THAT(test::message_of<DataError>([&] { (void)read_image(jpeg, 1 << 26); }),
              HasSubstr("got 65500 x 65500"));
}

/// The PNG with a chunk inserted after its header.
std::string with_chunk(const std::string& png, const std::string& type, const std::string& data) {
  const auto word = [](std::uint32_t value) {
    return std::string{static_cast<char>(value >> 24), static_cast<char>(value >> 16),
                       static_cast<char>(value >> 8), static_cast<char>(value)};
  };
  std::uint32_t crc = 0xffffffffU;
  for (const char c : type + data) {
    crc ^= static_cast<std::uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((0U - (crc & 1U)) & 0xedb88320U);
  }
  std::string result = png;
  return result.insert(33, word(static_cast<std::uint32_t>(data.size())) + type + data + word(~crc));
}

/// Compressed text chunks can expand to thousands of times the size of the file.
TEST(ImageFile, IgnoresTextChunksOfPng) {
  const std::string png = image_bytes("rgb.png"),
                    text = std::string("comment\0", 8) + std::string(5 << 20, 'x');
  const std::string with_text = with_chunk(png, "tEXt", text);
  EXPECT_EQ(read_image(with_text, kAnySize).rgb, read_image(png, kAnySize).rgb);
}

/// A progressive JPEG may repeat the first scan, of DC values, any number of times.
TEST(ImageFile, RejectsJpegWithTooManyScans) {
  const std::string jpeg = image_bytes("progressive.jpg");
  const std::size_t first = jpeg.find("\xff\xda");
  std::size_t next = first + 2;  // the next marker; 0xff followed by 0 is an escaped 0xff
  do {
    next = jpeg.find('\xff', next + 1);
    ASSERT_NE(next, std::string::npos);
  } while (jpeg[next + 1] == '\0');
  const auto with_repeated_scan = [&](int times) {
    std::string many = jpeg.substr(0, next);
    for (int i = 0; i < times; ++i) many += jpeg.substr(first, next - first);
    return many + jpeg.substr(next);
  };
  EXPECT_THAT(test::message_of<DataError>([&] { (void)read_image(with_repeated_scan(200), kAnySize); }),
              HasSubstr("got: more than 100 scans"));
  EXPECT_EQ(read_image(with_repeated_scan(50), kAnySize).rgb, read_image(jpeg, kAnySize).rgb);
}

}  // namespace
}  // namespace colonnade::images
