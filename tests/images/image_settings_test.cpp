// preprocessor_config.json against Transformers: types, defaults, keys.
#include "colonnade/images/image_settings.h"

#include <gmock/gmock.h>

#include "colonnade/base/error.h"
#include "colonnade/images/clip_image.h"
#include "images/image_vectors.h"

namespace colonnade::images {
namespace {

using testing::HasSubstr;

class ProcessorFile : public testing::Test {
 protected:
  std::string read(const std::string& text, ImageSettings& settings) {
    write(folder_ / "p.json", text);
    return test::message_of<Error>([&] { settings = read_image_settings(folder_ / "p.json"); });
  }
  test::TempFolder folder_;
};

TEST_F(ProcessorFile, ReadsFilesOfPublishedModels) {
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

/// Every 16th pixel of the output of Transformers for a file that contains only the type.
TEST_F(ProcessorFile, UsesTheDefaultsOfItsType) {
  const RgbImage image = read_image(image_bytes("large.jpg"), 1 << 20);
  const auto expected = test::read_tensors("images/expected.safetensors");
  for (const char* type :
       {"CLIP", "ChineseCLIP", "Bit", "Siglip", "Blip", "ViT", "DeiT", "Pvt", "MobileNetV1"}) {
    ImageSettings s;
    ASSERT_EQ(read(fmt::format(R"({{"image_processor_type": "{}ImageProcessor"}})", type), s), "");
    std::vector<float> pixels(s.values()), sampled;
    to_pixels(resize_and_crop(image, s), s, pixels);
    for (std::int64_t row = 0; row < 3 * s.height; ++row)
      for (std::int64_t x = 0; x < s.width && row % s.height % 16 == 0; x += 16)
        sampled.push_back(pixels[static_cast<std::size_t>(row * s.width + x)]);
    EXPECT_TRUE(std::ranges::equal(sampled, expected.at(fmt::format("large.{}", type)))) << type;
  }
}

TEST_F(ProcessorFile, InterpretsScalarSizesByType) {
  ImageSettings s;
  EXPECT_EQ(read(R"({"image_processor_type": "ViTImageProcessorFast", "size": 100})", s), "");
  EXPECT_EQ(s.shortest_edge, 0);
  EXPECT_EQ(s.height, 100);
  EXPECT_EQ(read(R"({"feature_extractor_type": "DeiTFeatureExtractor", "size": 300, "crop_size": 200})", s),
            "");
  EXPECT_EQ(s.resize_width, 300);
  EXPECT_EQ(s.width, 200);
  EXPECT_EQ(
      read(R"({"size": 300, "do_pad": null, "do_convert_rgb": null, "_valid_processor_keys": ["a"]})", s),
      "");
  EXPECT_EQ(s.shortest_edge, 300);
  EXPECT_EQ(s.width, 224);
  EXPECT_EQ(read(R"({"size": 300, "default_to_square": true, "data_format": "channels_first"})", s), "");
  EXPECT_EQ(s.resize_width, 300);
  EXPECT_THAT(read(R"({"image_processor_type": "SiglipImageProcessor", "size": 100})", s),
              HasSubstr("one size"));
}

/// Like Transformers 5.23, where null does not select the type's default.
TEST_F(ProcessorFile, TreatsNullAsFalseOrUnset) {
  ImageSettings s;
  EXPECT_THAT(read(R"({"do_center_crop": null})", s), HasSubstr("one size"));
  EXPECT_EQ(read(R"({"do_center_crop": null, "crop_size": null, "size": {"height": 30, "width": 20}})", s),
            "");
  EXPECT_EQ(s.height, 30);
  EXPECT_EQ(
      read(R"({"do_rescale": null, "rescale_factor": null, "do_normalize": null, "image_mean": null})", s),
      "");
  EXPECT_EQ(s.rescale, 1);
  EXPECT_EQ(s.std[0], 1);
  EXPECT_THAT(read(R"({"do_resize": null})", s), HasSubstr("do_resize must be true; got null"));
  EXPECT_THAT(read(R"({"crop_size": null})", s), HasSubstr("a crop of 0 x 0"));
  EXPECT_THAT(read(R"({"rescale_factor": null})", s), HasSubstr("must be set with do_rescale"));
  EXPECT_THAT(read(R"({"image_std": null})", s), HasSubstr("image_std must be set with do_normalize"));
  for (const char* key : {"size", "resample"})
    EXPECT_THAT(read(fmt::format(R"({{"{}": null}})", key), s),
                HasSubstr("must be set, or left out; got null"));
}

TEST_F(ProcessorFile, RejectsOtherTypesByName) {
  ImageSettings s;
  for (const char* type :
       {"SegGptImageProcessor", "LevitImageProcessor", "LlavaNextImageProcessorFast", "CLIP"})
    EXPECT_THAT(
        read(fmt::format(R"({{"image_processor_type": "{}"}})", type), s),
        HasSubstr(fmt::format("image_processor_type must be one of CLIP, ChineseCLIP, Bit, Siglip, Blip, "
                              "ViT, DeiT, Pvt, MobileNetV1, followed by ImageProcessor, which are "
                              "supported; got {};",
                              type)));
  EXPECT_THAT(read(R"({"feature_extractor_type": "BeitFeatureExtractor"})", s),
              HasSubstr("feature_extractor_type must be one of CLIP"));
  EXPECT_THAT(read(R"({"image_processor_type": 7})", s),
              HasSubstr("image_processor_type must be a string; got 7"));
  EXPECT_THAT(read(R"({"feature_extractor_type": ["CLIP"]})", s),
              HasSubstr(R"(feature_extractor_type must be a string; got ["CLIP"])"));
  EXPECT_EQ(read(R"({"image_processor_type": null, "feature_extractor_type": "ViTFeatureExtractor"})", s),
            "");
  EXPECT_EQ(s.mean[0], 0.5);
}

TEST_F(ProcessorFile, RejectsUnsupportedSettings) {
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
}  // namespace colonnade::images
