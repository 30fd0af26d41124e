// Decoder of JPEG and PNG files to 8-bit RGB, equal to PIL's Image.open(...).convert("RGB").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace colonnade::images {

/// Rows from top to bottom, pixels from left to right, each red, green, blue.
struct RgbImage {
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::vector<std::uint8_t> rgb = {};  ///< [height, width, 3]
};

struct ImageSize {
  std::int64_t width = 0;
  std::int64_t height = 0;
};

/// Size in the headers. Throws like read_image, except for errors after the headers.
ImageSize image_size(std::span<const char> file);

/// Decodes a JPEG or PNG file, detected by its first bytes.
/// - JPEG (libjpeg-turbo with its exact inverse DCT and smooth chroma upsampling): grayscale, YCbCr, RGB,
/// CMYK, YCCK;
///   baseline and progressive. CMYK is converted to RGB as in PIL, without a color profile.
/// - PNG (libpng): grayscale of 1 to 16 bits, palettes, RGB, with or without transparency; also interlaced.
/// Alpha is
///   dropped, not blended. 16-bit values are reduced to their upper 8 bits, except grayscale, where PIL clips
///   values above 255.
/// Color profiles, gamma and Exif orientation are ignored, as in PIL and CLIP's processor.
/// Throws DataError (without a file name) for other formats, damaged or truncated files (PIL silently accepts
/// some damage of JPEG data), more than `max_pixels`, and a JPEG of more than 100 scans.
RgbImage read_image(std::span<const char> file, std::int64_t max_pixels);

}  // namespace colonnade::images
