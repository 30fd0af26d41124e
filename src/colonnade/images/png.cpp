// See png.h. libpng reports errors by longjmp, so objects between setjmp and there must not need a
// destructor.
#include "colonnade/images/png.h"

#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "colonnade/base/error.h"

namespace colonnade::images {
namespace {

// Limits besides the pixels: palettes and transparency are small, texts and profiles are skipped.
constexpr png_alloc_size_t kLargestChunk = 1 << 20;
constexpr int kMostChunks = 8;

/// Remaining input of libpng, and its error message.
struct Source {
  std::span<const char> rest;
  std::array<char, 128> text;
};

void on_read(png_structp png, png_bytep out, std::size_t size) {
  auto& source = *static_cast<Source*>(png_get_io_ptr(png));
  if (size > source.rest.size()) png_error(png, "a truncated file");
  std::memcpy(out, source.rest.data(), size);
  source.rest = source.rest.subspan(size);
}

[[noreturn]] void on_error(png_structp png, png_const_charp text) {
  auto& source = *static_cast<Source*>(png_get_error_ptr(png));
  std::snprintf(source.text.data(), source.text.size(), "%s", text);
  png_longjmp(png, 1);
}

void on_warning(png_structp /*png*/, png_const_charp /*text*/) {}

/// Size and pixel format of the file.
struct Layout {
  std::int64_t width, height;
  int channels, bits;
  bool palette;
  std::array<png_color, 256> colors;
};

/// Reads the headers; libpng reports errors by longjmp.
void open(png_structp png, png_infop info, Source& source, Layout& layout) {
  png_set_read_fn(png, &source, on_read);
  png_set_user_limits(png, 0x7fffffff, 0x7fffffff);
  png_set_chunk_malloc_max(png, kLargestChunk);
  png_set_chunk_cache_max(png, kMostChunks);
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER,
                              reinterpret_cast<png_const_bytep>("tEXt\0zTXt\0iTXt\0iCCP\0sPLT\0eXIf"), 6);
  png_read_info(png, info);
  layout.width = png_get_image_width(png, info);
  layout.height = png_get_image_height(png, info);
  layout.bits = png_get_bit_depth(png, info);
  layout.channels = png_get_channels(png, info);
  layout.palette = png_get_color_type(png, info) == PNG_COLOR_TYPE_PALETTE;
  layout.colors.fill({});
  png_colorp colors = nullptr;
  int count = 0;
  if (layout.palette && png_get_PLTE(png, info, &colors, &count) != 0)
    std::copy_n(colors, std::min(count, 256), layout.colors.begin());
  png_set_packing(png);  // one byte per value of 1, 2 or 4 bits
  if (layout.bits == 16 && layout.channels > 1) png_set_strip_16(png);
}

/// Converts one row to RGB.
void convert(const Layout& layout, const std::uint8_t* row, std::uint8_t* rgb) {
  const bool wide = layout.bits == 16 && layout.channels == 1;
  const int scale = layout.bits < 8 ? 255 / ((1 << layout.bits) - 1) : 1;
  for (std::int64_t x = 0; x < layout.width; ++x, rgb += 3) {
    if (layout.channels >= 3) {
      std::copy_n(row + x * layout.channels, 3, rgb);
    } else if (layout.palette) {
      const png_color& color = layout.colors[row[x]];
      rgb[0] = color.red;
      rgb[1] = color.green;
      rgb[2] = color.blue;
    } else {
      int value = row[x * layout.channels] * scale;
      if (wide) value = row[2 * x] != 0 ? 255 : row[2 * x + 1];
      rgb[0] = rgb[1] = rgb[2] = static_cast<std::uint8_t>(value);
    }
  }
}

/// State of a decoder, constructed before setjmp and destroyed after it.
struct Reader {
  Source source;
  Layout layout;
  png_structp png = nullptr;
  png_infop info = nullptr;
  explicit Reader(std::span<const char> file) : source{file, {}}, layout{} {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source, on_error, on_warning);
    if (png != nullptr) info = png_create_info_struct(png);
    if (info == nullptr) {
      png_destroy_read_struct(&png, nullptr, nullptr);
      throw Error("libpng: memory must be available; got none");
    }
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }

  [[noreturn]] void throw_damaged() const {
    throw DataError(
        fmt::format("a PNG file must be complete and undamaged; got: {}; replace it, or give --on-error skip",
                    source.text.data()));
  }
};

bool try_open(Reader& reader) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;  // NOLINT(cert-err52-cpp)
  open(reader.png, reader.info, reader.source, reader.layout);
  return true;
}

/// Returns the bytes of a decoded row, and the number of interlace passes.
bool try_begin(Reader& reader, std::size_t& row_bytes, int& passes) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;  // NOLINT(cert-err52-cpp)
  passes = png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  row_bytes = png_get_rowbytes(reader.png, reader.info);
  return true;
}

/// Reads all rows in all passes; `rows` holds one row, or all of them with several passes.
bool try_read(Reader& reader, std::uint8_t* rows, std::size_t stride, int passes, std::uint8_t* rgb) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;  // NOLINT(cert-err52-cpp)
  for (int pass = 0; pass < passes; ++pass)
    for (std::int64_t y = 0; y < reader.layout.height; ++y) {
      std::uint8_t* row = rows + static_cast<std::size_t>(y) * stride;
      png_read_row(reader.png, row, nullptr);
      if (pass == passes - 1) convert(reader.layout, row, rgb + y * reader.layout.width * 3);
    }
  return true;
}

}  // namespace

ImageSize png_size(std::span<const char> file) {
  Reader reader(file);
  if (!try_open(reader)) reader.throw_damaged();
  return {reader.layout.width, reader.layout.height};
}

RgbImage read_png(std::span<const char> file) {
  Reader reader(file);
  std::size_t row_bytes = 0;
  int passes = 1;
  if (!try_open(reader) || !try_begin(reader, row_bytes, passes)) reader.throw_damaged();
  const Layout& layout = reader.layout;
  RgbImage image{.width = layout.width, .height = layout.height};
  image.rgb.resize(static_cast<std::size_t>(layout.width * layout.height) * 3);
  std::vector<std::uint8_t> rows(passes == 1 ? row_bytes
                                             : row_bytes * static_cast<std::size_t>(layout.height));
  if (!try_read(reader, rows.data(), passes == 1 ? 0 : row_bytes, passes, image.rgb.data()))
    reader.throw_damaged();
  return image;
}

}  // namespace colonnade::images
