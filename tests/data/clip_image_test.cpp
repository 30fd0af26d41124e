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
  EXPECT_EQ(compared, 46);
  const RgbImage large = resize_and_crop(read_image(image_bytes("large.jpg"), 1 << 20), {});
  EXPECT_TRUE(std::ranges::equal(large.rgb, expected.at("large.crop")));
}

/// Pillow resizes along columns first where the height shrinks by more than twice what the width does.
TEST(ClipImage, ResizesInTheOrderOfPillow) {
  const RgbImage scan = read_image(image_bytes("scan.jpg"), 1 << 20);
  int compared = 0;
  for (const auto& [name, expected] : read_tensors("images/expected.safetensors")) {
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

/// Every 16th pixel of what Transformers makes of a file that names its type alone.
TEST_F(ProcessorFile, TakesWhatItLeavesOutFromItsType) {
  const RgbImage image = read_image(image_bytes("large.jpg"), 1 << 20);
  const auto expected = read_tensors("images/expected.safetensors");
  for (const char* type :
       {"CLIP", "ChineseCLIP", "Bit", "Siglip", "Blip", "ViT", "DeiT", "Pvt", "MobileNetV1"}) {
    ImageSettings s;
    ASSERT_EQ(read(fmt::format(R"({{"image_processor_type": "{}ImageProcessor"}})", type), s), "");
    std::vector<float> pixels(s.values()), some;
    to_pixels(resize_and_crop(image, s), s, pixels);
    for (std::int64_t row = 0; row < 3 * s.height; ++row)
      for (std::int64_t x = 0; x < s.width && row % s.height % 16 == 0; x += 16)
        some.push_back(pixels[static_cast<std::size_t>(row * s.width + x)]);
    EXPECT_TRUE(std::ranges::equal(some, expected.at(fmt::format("large.{}", type)))) << type;
  }
}

TEST_F(ProcessorFile, ReadsOneNumberAsItsTypeDoes) {
  ImageSettings s;
  EXPECT_EQ(read(R"({"image_processor_type": "ViTImageProcessorFast", "size": 100})", s), "");
  EXPECT_EQ(s.shortest_edge, 0);
  EXPECT_EQ(s.height, 100);
  EXPECT_EQ(read(R"({"feature_extractor_type": "DeiTFeatureExtractor", "size": 300, "crop_size": 200})", s), "");
  EXPECT_EQ(s.resize_width, 300);
  EXPECT_EQ(s.width, 200);
  EXPECT_EQ(read(R"({"size": 300, "do_pad": null, "do_center_crop": null, "_valid_processor_keys": ["a"]})", s), "");
  EXPECT_EQ(s.shortest_edge, 300);
  EXPECT_EQ(s.width, 224);
  EXPECT_EQ(read(R"({"size": 300, "default_to_square": true, "data_format": "channels_first"})", s), "");
  EXPECT_EQ(s.resize_width, 300);
  EXPECT_THAT(read(R"({"image_processor_type": "SiglipImageProcessor", "size": 100})", s), HasSubstr("one size"));
}

TEST_F(ProcessorFile, RefusesOtherTypesByName) {
  ImageSettings s;
  for (const char* type : {"SegGptImageProcessor", "LevitImageProcessor", "LlavaNextImageProcessorFast", "CLIP"})
    EXPECT_THAT(read(fmt::format(R"({{"image_processor_type": "{}"}})", type), s),
                HasSubstr(fmt::format("image_processor_type must be one of CLIP, ChineseCLIP, Bit, Siglip, Blip, "
                                      "ViT, DeiT, Pvt, MobileNetV1 with ImageProcessor behind it, whose steps are "
                                      "known; got {};",
                                      type)));
  EXPECT_THAT(read(R"({"feature_extractor_type": "BeitFeatureExtractor"})", s),
              HasSubstr("feature_extractor_type must be one of CLIP"));
}

TEST_F(ProcessorFile, RefusesWhatItDoesNotDo) {
  ImageSettings s;
  EXPECT_THAT(read(R"({"resample": 1})", s), HasSubstr("resample must be 3, bicubic, or 2, bilinear; got 1"));
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
