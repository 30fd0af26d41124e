// Image preprocessing settings, and their file preprocessor_config.json.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace colonnade::images {

enum class Resample { kBilinear = 2, kBicubic = 3 };  // Pillow's numbers

/// Defaults are CLIP's.
struct ImageSettings {
  std::int64_t shortest_edge =
      224;  ///< target of the shorter edge, keeping the aspect ratio; 0 uses the next two
  std::int64_t resize_height = 0;
  std::int64_t resize_width = 0;
  std::int64_t height = 224;  ///< height H of the center crop
  std::int64_t width = 224;   ///< width W of the center crop
  double rescale = 1.0 / 255;
  std::array<double, 3> mean{0.48145466, 0.4578275, 0.40821073};
  std::array<double, 3> std{0.26862954, 0.26130258, 0.27577711};
  Resample resample = Resample::kBicubic;

  [[nodiscard]] std::size_t values() const { return static_cast<std::size_t>(3 * height * width); }
};

/// Reads a preprocessor_config.json. Its image_processor_type (or feature_extractor_type), by default CLIP's,
/// supplies missing settings. Throws DataError if the file does not exist; ConfigError for an unsupported
/// type (supported are CLIP, ChineseCLIP, Bit, Siglip, Blip, ViT, DeiT, Pvt, MobileNetV1), for an unknown key
/// or an unsupported value: other resampling than bicubic and bilinear, no resizing, a crop larger than the
/// resized image.
ImageSettings read_image_settings(const std::filesystem::path& path);

/// Throws ConfigError naming `what` for sizes outside 1 to 16384, a crop that may exceed the resized image,
/// and standard deviations of 0.
void check(const ImageSettings& settings, const std::string& what);

}  // namespace colonnade::images
