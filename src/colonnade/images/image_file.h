// JPEG and PNG files to 8-bit RGB, as PIL's Image.open(...).convert("RGB") gives it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace colonnade::images {

/// Rows from the top, pixels from the left, each red, green, blue.
struct RgbImage {
  std::int64_t width = 0;
  std::int64_t height = 0;
  std::vector<std::uint8_t> rgb = {};  ///< [height, width, 3]
};

struct ImageSize {
  std::int64_t width = 0;
  std::int64_t height = 0;
};

/// The size that the headers say. Throws as read_image, but for what lies behind the headers.
ImageSize image_size(std::span<const char> file);

/// The picture in a JPEG or PNG file, known by its first bytes.
/// - JPEG (libjpeg-turbo, its exact inverse cosine transform, smooth chroma): grey, YCbCr, RGB, CMYK, YCCK;
///   baseline and progressive. CMYK becomes RGB as in PIL, without a colour profile.
/// - PNG (libpng): grey of 1 to 16 bits, palettes, RGB, with or without transparency; interlaced too.
///   Alpha is dropped, not blended; of 16 bits the upper 8 count, but of grey, where PIL cuts values above
///   255.
/// Colour profiles, gamma and Exif's orientation change nothing, as in PIL and in CLIP's processor.
/// Throws DataError (without a file's name) for other formats, damaged or cut files (PIL takes some damage
/// in a JPEG's data without a word), more than `max_pixels`, and a JPEG of more than 100 scans.
RgbImage read_image(std::span<const char> file, std::int64_t max_pixels);

}  // namespace colonnade::images
