// See image_file.h.
#include "colonnade/images/image_file.h"

#include <algorithm>
#include <string_view>

#include "colonnade/base/error.h"
#include "colonnade/images/jpeg.h"
#include "colonnade/images/png.h"

namespace colonnade::images {
namespace {

enum class Format { kJpeg, kPng };

Format format_of(std::span<const char> file) {
  const std::string_view text(file.data(), file.size());
  if (text.starts_with("\xff\xd8\xff")) return Format::kJpeg;
  if (text.starts_with("\x89PNG\r\n\x1a\n")) return Format::kPng;
  const char* got = "something else";
  if (text.starts_with("GIF8")) got = "GIF";
  if (text.size() >= 12 && text.starts_with("RIFF") && text.substr(8, 4) == "WEBP") got = "WebP";
  if (text.starts_with("BM")) got = "BMP";
  if (text.starts_with("II*") || text.starts_with("MM")) got = "TIFF";
  if (file.empty()) got = "no bytes";
  throw DataError(
      fmt::format("an image must be JPEG or PNG; got {}; convert it, or give --on-error skip", got));
}

}  // namespace

ImageSize image_size(std::span<const char> file) {
  return format_of(file) == Format::kJpeg ? jpeg_size(file) : png_size(file);
}

RgbImage read_image(std::span<const char> file, std::int64_t max_pixels) {
  const Format format = format_of(file);
  const ImageSize size = format == Format::kJpeg ? jpeg_size(file) : png_size(file);
  if (size.width > max_pixels / std::max<std::int64_t>(size.height, 1))
    throw DataError(fmt::format("an image must have at most {} pixels; got {} x {}; raise --max-image-pixels",
                                max_pixels, size.width, size.height));
  return format == Format::kJpeg ? read_jpeg(file) : read_png(file);
}

}  // namespace colonnade::images
