// See jpeg.h. libjpeg reports errors by longjmp, so objects between setjmp and there must not need a
// destructor.
#include "colonnade/images/jpeg.h"

#include <array>
#include <csetjmp>
#include <cstdio>  // required by jpeglib.h
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include "colonnade/base/error.h"

namespace colonnade::images {
namespace {

constexpr int kMostScans = 100;  // a small file with thousands of scans would take minutes
constexpr std::int64_t kMostWorkMemory = 1 << 30;

/// libjpeg's callbacks, and the state to return to after an error.
struct Failure {
  jpeg_error_mgr manager;  // first member: libjpeg returns its address
  jpeg_progress_mgr progress;
  std::array<char, JMSG_LENGTH_MAX> text;
  std::jmp_buf back;
};

Failure& failure_of(j_common_ptr info) {
  return *reinterpret_cast<Failure*>(info->err);  // NOLINT(cppcoreguidelines-pro-type-reinterpret-cast)
}

[[noreturn]] void on_error(j_common_ptr info) {
  Failure& failure = failure_of(info);
  failure.manager.format_message(info, failure.text.data());
  std::longjmp(failure.back, 1);  // NOLINT(cert-err52-cpp): C's frames have no destructors
}

/// Treats damaged data as an error and ignores other warnings.
void on_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  switch (info->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
    case JWRN_NOT_SEQUENTIAL:
      on_error(info);
    default:
      return;
  }
}

void on_progress(j_common_ptr info) {
  const auto* decoder =
      reinterpret_cast<j_decompress_ptr>(info);  // NOLINT(cppcoreguidelines-pro-type-reinterpret-cast)
  if (decoder->input_scan_number <= kMostScans) return;
  Failure& failure = failure_of(info);
  std::snprintf(failure.text.data(), failure.text.size(), "more than %d scans", kMostScans);
  std::longjmp(failure.back, 1);  // NOLINT(cert-err52-cpp)
}

void prepare(jpeg_decompress_struct& info, Failure& failure) {
  info.err = jpeg_std_error(&failure.manager);
  failure.manager.error_exit = on_error;
  failure.manager.emit_message = on_message;
  failure.progress.progress_monitor = on_progress;
}

void open(jpeg_decompress_struct& info, Failure& failure, std::span<const char> file) {
  jpeg_create_decompress(&info);
  info.progress = &failure.progress;
  info.mem->max_memory_to_use = kMostWorkMemory;
  jpeg_mem_src(&info,
               reinterpret_cast<const unsigned char*>(
                   file.data()),  // NOLINT(cppcoreguidelines-pro-type-reinterpret-cast)
               static_cast<unsigned long>(file.size()));  // NOLINT(google-runtime-int): libjpeg's
  jpeg_read_header(&info, TRUE);
}

/// Calls `use` with the opened file; returns false with failure.text on an error, which leaves `use` by
/// longjmp: it must not hold anything that needs a destructor.
template <typename Use>
bool try_to(std::span<const char> file, Failure& failure, Use use) {
  jpeg_decompress_struct info{};
  prepare(info, failure);
  if (setjmp(failure.back) != 0) {  // NOLINT(cert-err52-cpp)
    jpeg_destroy_decompress(&info);
    return false;
  }
  open(info, failure, file);
  use(info);
  jpeg_destroy_decompress(&info);
  return true;
}

/// Decodes grayscale and CMYK as they are, everything else as RGB; `out` holds 3 bytes per pixel, `row` 4.
void read_pixels(jpeg_decompress_struct& info, std::uint8_t* out, std::uint8_t* row) {
  const bool grey = info.num_components == 1, four = info.num_components == 4;
  info.out_color_space = grey ? JCS_GRAYSCALE : four ? JCS_CMYK : JCS_RGB;
  const int flip = four ? 255 : 0;  // inverted, as written by Adobe's programs; PIL always assumes this
  jpeg_start_decompress(&info);
  while (info.output_scanline < info.output_height) {
    std::uint8_t* rgb = out + std::size_t{info.output_scanline} * info.output_width * 3;
    JSAMPROW rows[1] = {grey || four ? row : rgb};  // NOLINT(cppcoreguidelines-avoid-c-arrays): libjpeg's
    jpeg_read_scanlines(&info, rows, 1);
    for (std::size_t x = 0; grey && x < info.output_width; ++x)
      rgb[3 * x] = rgb[3 * x + 1] = rgb[3 * x + 2] = row[x];
    for (std::size_t x = 0; four && x < info.output_width; ++x) {
      const int light = 255 - (row[4 * x + 3] ^ flip);
      for (std::size_t c = 0; c < 3; ++c) {
        const int product = (row[4 * x + c] ^ flip) * light + 128;
        const int value = light - (((product >> 8) + product) >> 8);
        rgb[3 * x + c] = static_cast<std::uint8_t>(value < 0 ? 0 : value);
      }
    }
  }
  jpeg_finish_decompress(&info);
}

[[noreturn]] void throw_damaged(const Failure& failure) {
  throw DataError(
      fmt::format("a JPEG file must be complete and undamaged; got: {}; replace it, or give --on-error skip",
                  failure.text.data()));
}

}  // namespace

ImageSize jpeg_size(std::span<const char> file) {
  Failure failure{};
  ImageSize size;
  const auto read_size = [&size](const jpeg_decompress_struct& info) {
    size = {static_cast<std::int64_t>(info.image_width), static_cast<std::int64_t>(info.image_height)};
  };
  if (!try_to(file, failure, read_size)) throw_damaged(failure);
  return size;
}

RgbImage read_jpeg(std::span<const char> file) {
  const ImageSize size = jpeg_size(file);
  RgbImage image{.width = size.width, .height = size.height};
  image.rgb.resize(static_cast<std::size_t>(size.width * size.height) * 3);
  std::vector<std::uint8_t> row(static_cast<std::size_t>(size.width) * 4);
  Failure failure{};
  const auto read = [&](jpeg_decompress_struct& info) { read_pixels(info, image.rgb.data(), row.data()); };
  if (!try_to(file, failure, read)) throw_damaged(failure);
  return image;
}

}  // namespace colonnade::images
