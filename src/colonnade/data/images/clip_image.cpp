// See clip_image.h.
#include "colonnade/data/images/clip_image.h"

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/kernels/resize.h"

namespace colonnade::data {
namespace {

constexpr std::int64_t kLongestEdge = 65535;
constexpr std::int64_t kLargestSize = 16384;
constexpr int kWeightBits = 22;

double bicubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * kA;
  return 0;
}

/// The weights of outputs [begin, begin + count) of an axis that goes from `in` pixels to `out`.
struct Weights {
  std::vector<std::int32_t> first, count, weight;
  std::int64_t stride = 0;

  Weights(std::int64_t in, std::int64_t out, std::int64_t begin, std::int64_t outputs) {
    const double scale = static_cast<double>(in) / static_cast<double>(out);
    const double widened = std::max(scale, 1.0), support = 2.0 * widened;
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
        exact[static_cast<std::size_t>(k)] = bicubic((static_cast<double>(k + low) - center + 0.5) * steps);
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

using simdjson::dom::element;

[[noreturn]] void refuse(const std::string& path, std::string_view key, const std::string& rule,
                         element value) {
  throw ConfigError(fmt::format("{}: {} must be {}; got {}; give a file of CLIPImageProcessor", path, key,
                                rule, simdjson::minify(value)));
}

/// An edge, {"height", "width"} or one number for both.
void read_pair(const std::string& path, std::string_view key, element value, std::int64_t& height,
               std::int64_t& width) {
  if (value.get_int64().get(height) == simdjson::SUCCESS) {
    width = height;
    return;
  }
  simdjson::dom::object pair;
  if (value.get_object().get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
      pair["height"].get_int64().get(height) != simdjson::SUCCESS ||
      pair["width"].get_int64().get(width) != simdjson::SUCCESS)
    refuse(path, key, "a number or {\"height\", \"width\"}", value);
}

void read_three(const std::string& path, std::string_view key, element value, std::array<double, 3>& out) {
  simdjson::dom::array values;
  if (value.get_array().get(values) != simdjson::SUCCESS || values.size() != 3)
    refuse(path, key, "three numbers", value);
  for (std::size_t i = 0; i < 3; ++i)
    if (values.at(i).get_double().get(out[i]) != simdjson::SUCCESS) refuse(path, key, "three numbers", value);
}

bool flag(const std::string& path, std::string_view key, element value) {
  bool is = true;
  if (!value.is_null() && value.get_bool().get(is) != simdjson::SUCCESS)
    refuse(path, key, "true or false", value);
  return is;
}

struct Given {
  bool crop = true, rescale = true, normalize = true, has_crop_size = false;
};

void read_key(const std::string& path, std::string_view key, element value, ImageSettings& out,
              Given& given) {
  static const std::set<std::string_view> names{"image_processor_type", "feature_extractor_type",
                                                "processor_class"};
  if (names.contains(key)) return;
  if (key == "size") {
    simdjson::dom::object object;
    if (value.get_object().get(object) == simdjson::SUCCESS && object.size() == 1 &&
        object["shortest_edge"].get_int64().get(out.shortest_edge) == simdjson::SUCCESS)
      return;
    if (value.get_int64().get(out.shortest_edge) == simdjson::SUCCESS) return;
    out.shortest_edge = 0;
    read_pair(path, key, value, out.resize_height, out.resize_width);
  } else if (key == "crop_size") {
    given.has_crop_size = true;
    read_pair(path, key, value, out.height, out.width);
  } else if (key == "resample") {
    std::int64_t filter = 0;
    if (value.get_int64().get(filter) != simdjson::SUCCESS || filter != 3)
      refuse(path, key, "3, bicubic", value);
  } else if (key == "rescale_factor") {
    if (value.get_double().get(out.rescale) != simdjson::SUCCESS) refuse(path, key, "a number", value);
  } else if (key == "image_mean") {
    read_three(path, key, value, out.mean);
  } else if (key == "image_std") {
    read_three(path, key, value, out.std);
  } else if (key == "do_center_crop") {
    given.crop = flag(path, key, value);
  } else if (key == "do_rescale") {
    given.rescale = flag(path, key, value);
  } else if (key == "do_normalize") {
    given.normalize = flag(path, key, value);
  } else if (key == "do_resize" || key == "do_convert_rgb") {
    if (!flag(path, key, value)) refuse(path, key, "true", value);
  } else {
    refuse(path, key, "left out, for it is not known", value);
  }
}

}  // namespace

ImageSettings read_image_settings(const std::filesystem::path& path) {
  const simdjson::padded_string text(read_file(path));
  simdjson::dom::parser parser;
  simdjson::dom::object root;
  if (const auto error = parser.parse(text).get_object().get(root); error != simdjson::SUCCESS)
    throw DataError(fmt::format("{}: must be a JSON object; got: {}; name a preprocessor_config.json",
                                path.string(), simdjson::error_message(error)));
  ImageSettings settings;
  Given given;
  for (const auto field : root) read_key(path.string(), field.key, field.value, settings, given);
  if (!given.rescale) settings.rescale = 1;
  if (!given.normalize) {
    settings.mean.fill(0);
    settings.std.fill(1);
  }
  if (!given.crop) {
    if (settings.shortest_edge > 0)
      throw ConfigError(
          fmt::format("{}: images of one batch must have one size; got shortest_edge {} without "
                      "do_center_crop; give height and width, or crop",
                      path.string(), settings.shortest_edge));
    settings.height = settings.resize_height;
    settings.width = settings.resize_width;
  } else if (!given.has_crop_size) {
    settings.height = settings.width = 224;
  }
  check(settings, path.string());
  return settings;
}

void check(const ImageSettings& settings, const std::string& what) {
  const bool shortest = settings.shortest_edge > 0;
  const std::int64_t height = shortest ? settings.shortest_edge : settings.resize_height;
  const std::int64_t width = shortest ? settings.shortest_edge : settings.resize_width;
  if (height > kLargestSize || width > kLargestSize || settings.height < 1 || settings.width < 1 ||
      settings.height > height || settings.width > width)
    throw ConfigError(
        fmt::format("{}: images must be resized to at most {} and cropped to no more than that; got {} x {} "
                    "and a crop of {} x {}; give smaller ones",
                    what, kLargestSize, height, width, settings.height, settings.width));
  if (std::ranges::count(settings.std, 0.0) > 0)
    throw ConfigError(
        fmt::format("{}: image_std must not be 0; got 0; give what the model was trained with", what));
}

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
        fmt::format("an image must have edges of 1 to {}, resized too; got {} x {}, resized {} x {};"
                    " leave it out, or give --on-error skip",
                    kLongestEdge, image.width, image.height, size.width, size.height));
  const Weights across(image.width, size.width, (size.width - settings.width) / 2, settings.width);
  Weights down(image.height, size.height, (size.height - settings.height) / 2, settings.height);
  const std::int64_t top = down.first.front(), bottom = std::int64_t{down.first.back()} + down.count.back();
  for (std::int32_t& row : down.first) row -= static_cast<std::int32_t>(top);
  std::vector<std::uint8_t> narrow(static_cast<std::size_t>((bottom - top) * settings.width * 3));
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(16 * image.width));
  kernels::cpu::resize_rows({.in = image.rgb.data() + top * image.width * 3,
                             .out = narrow.data(),
                             .scratch = pixels.data(),
                             .rows = bottom - top,
                             .width = image.width,
                             .axis = across.axis()});
  RgbImage out{.width = settings.width, .height = settings.height};
  out.rgb.resize(settings.values());
  std::vector<std::int32_t> sums(static_cast<std::size_t>(settings.width * 3));
  kernels::cpu::resize_columns({.in = narrow.data(),
                                .out = out.rgb.data(),
                                .scratch = sums.data(),
                                .row_bytes = settings.width * 3,
                                .axis = down.axis()});
  return out;
}

void to_pixels(const RgbImage& image, const ImageSettings& settings, std::span<float> out) {
  COL_CHECK(out.size() == settings.values() && image.rgb.size() == settings.values(),
            "to_pixels: must be given {} values; got {} of {}", settings.values(), out.size(),
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

}  // namespace colonnade::data
