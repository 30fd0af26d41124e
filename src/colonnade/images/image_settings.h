// What becomes of an image before a model reads it, and preprocessor_config.json, which says it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace colonnade::images {

enum class Resample { kBilinear = 2, kBicubic = 3 };  // Pillow's numbers

/// The defaults are those of CLIP.
struct ImageSettings {
  std::int64_t shortest_edge = 224;  ///< the shorter edge becomes so long, the other in proportion; 0:
  std::int64_t resize_height = 0;    ///< both become so long
  std::int64_t resize_width = 0;
  std::int64_t height = 224;  ///< what is cut from the middle: H
  std::int64_t width = 224;   ///< W
  double rescale = 1.0 / 255;
  std::array<double, 3> mean{0.48145466, 0.4578275, 0.40821073};
  std::array<double, 3> std{0.26862954, 0.26130258, 0.27577711};
  Resample resample = Resample::kBicubic;

  [[nodiscard]] std::size_t values() const { return static_cast<std::size_t>(3 * height * width); }
};

/// The settings in a preprocessor_config.json. Its image_processor_type (or feature_extractor_type) gives
/// what the file leaves out, by default CLIP's. Throws DataError for no such file; ConfigError for another
/// type than those whose steps these are (CLIP, ChineseCLIP, Bit, Siglip, Blip, ViT, DeiT, Pvt, MobileNetV1),
/// for a key that is not known or asks for something else: resampling that is neither bicubic nor bilinear,
/// no resizing, a crop larger than the resized image.
ImageSettings read_image_settings(const std::filesystem::path& path);

/// Throws ConfigError, naming `what`, for sizes outside of 1 to 16384, a crop that may be larger than the
/// resized image, and deviations that are 0.
void check(const ImageSettings& settings, const std::string& what);

}  // namespace colonnade::images
