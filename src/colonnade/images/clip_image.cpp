// See clip_image.h.
#include "colonnade/images/clip_image.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "colonnade/base/error.h"
#include "colonnade/kernels/resize.h"

namespace colonnade::images {
namespace {

constexpr std::int64_t kLongestEdge = 65535;
constexpr int kWeightBits = 22;

double bicubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0;
}

double triangle(double x) { return std::max(1 - std::abs(x), 0.0); }

/// Filter weights of outputs [begin, begin + count) along an axis resized from `in` to `out` pixels.
struct Weights {
  std::vector<std::int32_t> first, count, weight;
  std::int64_t stride = 0;

  Weights(Resample filter, std::int64_t in, std::int64_t out, std::int64_t begin, std::int64_t outputs) {
    const bool cubic = filter == Resample::kBicubic;
    const double scale = static_cast<double>(in) / static_cast<double>(out);
    const double widened = std::max(scale, 1.0), support = (cubic ? 2.0 : 1.0) * widened;
    stride = static_cast<std::int64_t>(std::ceil(support)) * 2 + 1;
    weight.resize(static_cast<std::size_t>(outputs * stride));
    std::vector<double> exact(static_cast<std::size_t>(stride));
    for (std::int64_t i = 0; i < outputs; ++i) {
      const double center = (static_cast<double>(begin + i) + 0.5) * scale;
      const auto low =
          std::max<std::int64_t>(static_cast<std::int64_t>(std::floor(center - support + 0.5)), 0);
      const auto high =
          std::min<std::int64_t>(static_cast<std::int64_t>(std::floor(center + support + 0.5)), in);
      double sum = 0;
      const double steps = 1.0 / widened;
      for (std::int64_t k = 0; k < high - low; ++k) {
        const double x = (static_cast<double>(k + low) - center + 0.5) * steps;
        exact[static_cast<std::size_t>(k)] = cubic ? bicubic(x) : triangle(x);
        sum += exact[static_cast<std::size_t>(k)];
      }
      for (std::int64_t k = 0; k < high - low; ++k) {
        double w = exact[static_cast<std::size_t>(k)];
        if (sum != 0) w /= sum;
        w = w * (1 << kWeightBits) + (w < 0 ? -0.5 : 0.5);
        weight[static_cast<std::size_t>(i * stride + k)] = static_cast<std::int32_t>(w);
      }
      first.push_back(static_cast<std::int32_t>(low));
      count.push_back(static_cast<std::int32_t>(high - low));
    }
  }
  [[nodiscard]] kernels::ResizeAxis axis() const {
    return {first.data(), count.data(), weight.data(), stride, static_cast<std::int64_t>(first.size())};
  }
};

/// Resizes each of `rows` rows of `width` pixels.
std::vector<std::uint8_t> resize_rows(const std::uint8_t* in, std::int64_t rows, std::int64_t width,
                                      const Weights& across) {
  const kernels::ResizeAxis axis = across.axis();
  std::vector<std::uint8_t> out(static_cast<std::size_t>(rows * axis.outputs * 3));
  std::vector<std::uint8_t> scratch(static_cast<std::size_t>(16 * width));
  kernels::cpu::resize_rows(
      {.in = in, .out = out.data(), .scratch = scratch.data(), .rows = rows, .width = width, .axis = axis});
  return out;
}

/// Resizes the columns of rows of `width` pixels.
std::vector<std::uint8_t> resize_columns(const std::uint8_t* in, std::int64_t width, const Weights& down) {
  const kernels::ResizeAxis axis = down.axis();
  std::vector<std::uint8_t> out(static_cast<std::size_t>(axis.outputs * width * 3));
  std::vector<std::int32_t> sums(static_cast<std::size_t>(width * 3));
  kernels::cpu::resize_columns(
      {.in = in, .out = out.data(), .scratch = sums.data(), .row_bytes = width * 3, .axis = axis});
  return out;
}

}  // namespace

ImageSize resized_size(ImageSize image, const ImageSettings& settings) {
  if (settings.shortest_edge == 0) return {settings.resize_width, settings.resize_height};
  const std::int64_t edge = settings.shortest_edge;
  const std::int64_t shorter = std::min(image.width, image.height),
                     longer = std::max(image.width, image.height);
  const auto other =
      static_cast<std::int64_t>(static_cast<double>(edge * longer) / static_cast<double>(shorter));
  return image.width <= image.height ? ImageSize{edge, other} : ImageSize{other, edge};
}

RgbImage resize_and_crop(const RgbImage& image, const ImageSettings& settings) {
  const ImageSize size = resized_size({image.width, image.height}, settings);
  if (image.width < 1 || image.height < 1 ||
      std::max({size.width, size.height, image.width, image.height}) > kLongestEdge)
    throw DataError(
        fmt::format("an image must have edges of 1 to {}, also after resizing; got {} x {}, resized {} x {};"
                    " remove it, or give --on-error skip",
                    kLongestEdge, image.width, image.height, size.width, size.height));
  const Weights across(settings.resample, image.width, size.width, (size.width - settings.width) / 2,
                       settings.width);
  Weights down(settings.resample, image.height, size.height, (size.height - settings.height) / 2,
               settings.height);
  const std::int64_t top = down.first.front(), bottom = std::int64_t{down.first.back()} + down.count.back();
  for (std::int32_t& row : down.first) row -= static_cast<std::int32_t>(top);
  const std::uint8_t* rows = image.rgb.data() + top * image.width * 3;
  RgbImage out{.width = settings.width, .height = settings.height};
  // Each pass rounds, so the order of the passes affects the pixels.
  const bool columns_first =
      image.height > size.height && image.height - size.height > 2 * (image.width - size.width);
  if (columns_first) {
    const std::vector<std::uint8_t> flat = resize_columns(rows, image.width, down);
    out.rgb = resize_rows(flat.data(), settings.height, image.width, across);
  } else {
    const std::vector<std::uint8_t> narrow = resize_rows(rows, bottom - top, image.width, across);
    out.rgb = resize_columns(narrow.data(), settings.width, down);
  }
  return out;
}

void to_pixels(const RgbImage& image, const ImageSettings& settings, std::span<float> out) {
  COL_CHECK(out.size() == settings.values() && image.rgb.size() == settings.values(),
            "to_pixels: image and output must have {} values; got {} of {}", settings.values(), out.size(),
            image.rgb.size());
  const std::size_t plane = out.size() / 3;
  for (std::size_t c = 0; c < 3; ++c) {
    std::array<float, 256> table{};
    for (std::size_t v = 0; v < 256; ++v)
      table[v] = (static_cast<float>(static_cast<double>(v) * settings.rescale) -
                  static_cast<float>(settings.mean[c])) /
                 static_cast<float>(settings.std[c]);
    for (std::size_t i = 0; i < plane; ++i) out[c * plane + i] = table[image.rgb[3 * i + c]];
  }
}

}  // namespace colonnade::images
