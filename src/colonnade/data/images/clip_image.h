// An image as a vision model reads it: resized, cropped and normalised as Hugging Face's CLIPImageProcessor
// does with PIL, bit for bit.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>

#include "colonnade/data/images/image_file.h"

namespace colonnade::data {

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

  [[nodiscard]] std::size_t values() const { return static_cast<std::size_t>(3 * height * width); }
};

/// The settings in a preprocessor_config.json, of CLIPImageProcessor or one that does the same steps in the
/// same order (SiglipImageProcessor, say). Throws DataError for no such file, ConfigError for a key that is
/// not known or asks for something else: other resampling than bicubic, no resizing, a crop larger than the
/// resized image.
ImageSettings read_image_settings(const std::filesystem::path& path);

/// Throws ConfigError, naming `what`, for sizes outside of 1 to 16384, a crop that may be larger than the
/// resized image, and deviations that are 0.
void check(const ImageSettings& settings, const std::string& what);

/// The size after resizing, before the crop.
ImageSize resized_size(ImageSize image, const ImageSettings& settings);

/// Bicubic (a = -0.5, widened by the scale when it makes smaller) in 8-bit steps, first rows, then columns;
/// then the crop. Returns [height, width, 3]. Throws DataError for an edge of more than 65,535 pixels, before
/// or after. Source: Pillow's Resample.c; computed for what is cut out alone.
RgbImage resize_and_crop(const RgbImage& image, const ImageSettings& settings);

/// out[c, y, x] = (float(rescale * image[y, x, c]) - float(mean[c])) / float(std[c]), in fp32 as NumPy
/// computes it.
void to_pixels(const RgbImage& image, const ImageSettings& settings, std::span<float> out);

}  // namespace colonnade::data
