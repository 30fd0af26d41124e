// Resizing, cropping and normalising against Transformers' CLIPImageProcessor on Pillow.
#include "colonnade/images/clip_image.h"

#include <gmock/gmock.h>

#include "colonnade/base/error.h"
#include "images/image_vectors.h"

namespace colonnade::images {
namespace {

using testing::HasSubstr;

ImageSettings square(std::int64_t edge) { return {.shortest_edge = edge, .height = edge, .width = edge}; }

TEST(ClipImage, MatchesTransformersExactly) {
  const auto expected = test::read_tensors("images/expected.safetensors");
  int compared = 0;
  for (const std::string& name : image_names())
    for (const std::int64_t edge : {24, 50}) {
      const auto found = expected.find(fmt::format("{}.pixels.{}", name, edge));
      if (found == expected.end()) continue;
      const ImageSettings settings = square(edge);
      std::vector<float> pixels(settings.values());
      to_pixels(resize_and_crop(read_image(image_bytes(name), 1 << 20), settings), settings, pixels);
      EXPECT_TRUE(std::ranges::equal(pixels, found->second)) << name << " to " << edge;
      ++compared;
    }
  EXPECT_EQ(compared, 46);
  const RgbImage large = resize_and_crop(read_image(image_bytes("large.jpg"), 1 << 20), {});
  EXPECT_TRUE(std::ranges::equal(large.rgb, expected.at("large.crop")));
}

/// Pillow resizes vertically first if the height shrinks by more than twice as much as the width.
TEST(ClipImage, MatchesPillowsOrderOfPasses) {
  const RgbImage scan = read_image(image_bytes("scan.jpg"), 1 << 20);
  int compared = 0;
  for (const auto& [name, expected] : test::read_tensors("images/expected.safetensors")) {
    int height = 0, width = 0, filter = 0;
    if (std::sscanf(name.c_str(), "scan.%dx%d.%d", &height, &width, &filter) != 3) continue;
    const RgbImage image = resize_and_crop(scan, {.shortest_edge = 0,
                                                  .resize_height = height,
                                                  .resize_width = width,
                                                  .height = height,
                                                  .width = width,
                                                  .resample = static_cast<Resample>(filter)});
    EXPECT_TRUE(std::ranges::equal(image.rgb, expected)) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 16);
}

TEST(ClipImage, RoundsSizesLikeTransformers) {
  // 410 x 301 to 305 x 224, as int(224 * 410 / 301) is 305.
  const ImageSize size = resized_size({410, 301}, {});
  EXPECT_EQ(size.width, 305);
  EXPECT_EQ(size.height, 224);
  EXPECT_EQ(resized_size({301, 410}, {}).height, 305);
  EXPECT_EQ(resized_size({3, 200}, {.shortest_edge = 0, .resize_height = 7, .resize_width = 9}).width, 9);
}

TEST(ClipImage, RejectsTooLongEdges) {
  RgbImage thin{.width = 1, .height = 400};
  thin.rgb.resize(1200);
  EXPECT_THAT(test::message_of<DataError>([&] { (void)resize_and_crop(thin, {}); }),
              HasSubstr("got 1 x 400, resized 224 x 89600"));
}

}  // namespace
}  // namespace colonnade::images
