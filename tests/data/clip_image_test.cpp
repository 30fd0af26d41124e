// Resizing, cropping and normalising against Transformers' CLIPImageProcessor on Pillow.
#include "colonnade/data/images/clip_image.h"

#include <gmock/gmock.h>

#include "colonnade/base/error.h"
#include "data/image_vectors.h"

namespace colonnade::data {
namespace {

using testing::HasSubstr;

ImageSettings square(std::int64_t edge) { return {.shortest_edge = edge, .height = edge, .width = edge}; }

TEST(ClipImage, GivesTheVeryPixelsOfTransformers) {
  const auto expected = read_tensors("images/expected.safetensors");
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
  EXPECT_EQ(compared, 44);
  const RgbImage large = resize_and_crop(read_image(image_bytes("large.jpg"), 1 << 20), {});
  EXPECT_TRUE(std::ranges::equal(large.rgb, expected.at("large.crop")));
}

TEST(ClipImage, CropsFromTheMiddleAsTransformersCountsIt) {
  // 410 x 301 to 305 x 224, as int(224 * 410 / 301) is 305.
  const ImageSize size = resized_size({410, 301}, {});
  EXPECT_EQ(size.width, 305);
  EXPECT_EQ(size.height, 224);
  EXPECT_EQ(resized_size({301, 410}, {}).height, 305);
  EXPECT_EQ(resized_size({3, 200}, {.shortest_edge = 0, .resize_height = 7, .resize_width = 9}).width, 9);
}

TEST(ClipImage, RefusesEdgesThatAreTooLong) {
  RgbImage thin{.width = 1, .height = 400};
  thin.rgb.resize(1200);
  EXPECT_THAT(message_of<DataError>([&] { (void)resize_and_crop(thin, {}); }),
              HasSubstr("got 1 x 400, resized 224 x 89600"));
}

class ProcessorFile : public testing::Test {
 protected:
  std::string read(const std::string& text, ImageSettings& settings) {
    write(folder_ / "p.json", text);
    return message_of<Error>([&] { settings = read_image_settings(folder_ / "p.json"); });
  }
  TempFolder folder_;
};

TEST_F(ProcessorFile, ReadsWhatModelsComeWith) {
  ImageSettings s;
  EXPECT_EQ(read(R"({"crop_size": 336, "do_center_crop": true, "do_normalize": true, "do_resize": true,
    "feature_extractor_type": "CLIPFeatureExtractor", "image_mean": [0.5, 0.25, 0], "image_std": [1, 0.5, 0.25],
    "resample": 3, "size": {"shortest_edge": 336}})",
                 s),
            "");
  EXPECT_EQ(s.shortest_edge, 336);
  EXPECT_EQ(s.height, 336);
  EXPECT_EQ(s.mean[1], 0.25);
  EXPECT_EQ(s.std[2], 0.25);
  EXPECT_EQ(read(R"({"size": {"height": 30, "width": 20}, "do_center_crop": false, "do_normalize": false,
    "rescale_factor": 0.5, "image_processor_type": "SiglipImageProcessor", "do_convert_rgb": null})",
                 s),
            "");
  EXPECT_EQ(s.shortest_edge, 0);
  EXPECT_EQ(s.height, 30);
  EXPECT_EQ(s.width, 20);
  EXPECT_EQ(s.std[0], 1);
  EXPECT_EQ(s.mean[0], 0);
}

TEST_F(ProcessorFile, RefusesWhatItDoesNotDo) {
  ImageSettings s;
  EXPECT_THAT(read(R"({"resample": 2})", s), HasSubstr("resample must be 3, bicubic; got 2"));
  EXPECT_THAT(read(R"({"do_pad": true})", s), HasSubstr("do_pad must be left out"));
  EXPECT_THAT(read(R"({"do_resize": false})", s), HasSubstr("do_resize must be true"));
  EXPECT_THAT(read(R"({"size": {"longest_edge": 3}})", s), HasSubstr("size must be"));
  EXPECT_THAT(read(R"({"do_center_crop": false})", s), HasSubstr("one size"));
  EXPECT_THAT(read(R"({"size": 100})", s), HasSubstr("cropped to no more"));
  EXPECT_THAT(read(R"({"image_std": [1, 0, 1]})", s), HasSubstr("image_std must not be 0"));
  EXPECT_THAT(read(R"({"image_mean": [1]})", s), HasSubstr("three numbers"));
  EXPECT_THAT(read("[]", s), HasSubstr("must be a JSON object"));
}

}  // namespace
}  // namespace colonnade::data
