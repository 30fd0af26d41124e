// See image_settings.h.
#include "colonnade/images/image_settings.h"

#include <simdjson.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"

namespace colonnade::images {
namespace {

using simdjson::dom::element;

constexpr std::int64_t kLargestSize = 16384;

struct Normalization {
  std::array<double, 3> mean, std;
};
constexpr Normalization kClip{{0.48145466, 0.4578275, 0.40821073}, {0.26862954, 0.26130258, 0.27577711}};
constexpr Normalization kHalf{{0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}};
constexpr Normalization kImageNet{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};

/// Defaults of an image processor class of Transformers. Source: its class attributes, 5.23.
struct Processor {
  std::string_view name;       // without "ImageProcessor"
  std::int64_t shortest_edge;  // 0: both edges are resized to `both`
  std::int64_t both;
  std::int64_t crop;  // 0: none
  bool square;        // whether a size of one number applies to both edges
  Resample resample;
  Normalization normalization;
};
constexpr Processor kProcessors[] = {{"CLIP", 224, 0, 224, false, Resample::kBicubic, kClip},
                                     {"ChineseCLIP", 224, 0, 224, false, Resample::kBicubic, kClip},
                                     {"Bit", 224, 0, 224, false, Resample::kBicubic, kClip},
                                     {"Siglip", 0, 224, 0, false, Resample::kBicubic, kHalf},
                                     {"Blip", 0, 384, 0, true, Resample::kBicubic, kClip},
                                     {"ViT", 0, 224, 0, true, Resample::kBilinear, kHalf},
                                     {"DeiT", 0, 256, 224, true, Resample::kBicubic, kHalf},
                                     {"Pvt", 0, 224, 0, true, Resample::kBicubic, kImageNet},
                                     {"MobileNetV1", 256, 0, 224, false, Resample::kBilinear, kHalf}};

[[noreturn]] void throw_invalid(const std::string& path, std::string_view key, const std::string& rule,
                                element value) {
  throw ConfigError(
      fmt::format("{}: {} must be {}; got {}; correct the file", path, key, rule, simdjson::minify(value)));
}

/// The string at a key; empty if it is missing or null.
std::string_view text_at(const std::string& path, std::string_view key, simdjson::dom::object root) {
  std::string_view text;
  element value;
  if (root[key].get(value) == simdjson::SUCCESS && !value.is_null() &&
      value.get_string().get(text) != simdjson::SUCCESS)
    throw_invalid(path, key, "a string", value);
  return text;
}

/// The processor class that a file names. The suffixes Fast and Pil select implementations with equal
/// results.
const Processor& processor_of(const std::string& path, simdjson::dom::object root) {
  std::string_view key = "image_processor_type";
  std::string_view type = text_at(path, key, root);
  if (type.empty()) type = text_at(path, key = "feature_extractor_type", root);
  if (type.empty()) return kProcessors[0];
  std::string_view name = type;
  for (const std::string_view end : {"Fast", "Pil", "ImageProcessor", "FeatureExtractor"})
    if (name.ends_with(end)) name.remove_suffix(end.size());
  std::string known;
  for (const Processor& processor : kProcessors) {
    if (processor.name == name && name.size() < type.size()) return processor;
    known += (known.empty() ? "" : ", ") + std::string(processor.name);
  }
  throw ConfigError(fmt::format(
      "{}: {} must be one of {}, followed by ImageProcessor, which are supported; got {}; give a file of one of them",
      path, key, known, type));
}

/// Reads {"height", "width"}, or one number for both.
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
    throw_invalid(path, key, "a number or {\"height\", \"width\"}", value);
}

void read_three(const std::string& path, std::string_view key, element value, std::array<double, 3>& out) {
  simdjson::dom::array values;
  if (value.get_array().get(values) != simdjson::SUCCESS || values.size() != 3)
    throw_invalid(path, key, "three numbers", value);
  for (std::size_t i = 0; i < 3; ++i)
    if (values.at(i).get_double().get(out[i]) != simdjson::SUCCESS)
      throw_invalid(path, key, "three numbers", value);
}

bool flag(const std::string& path, std::string_view key, element value) {
  bool is = true;
  if (value.get_bool().get(is) != simdjson::SUCCESS) throw_invalid(path, key, "true or false", value);
  return is;
}

struct Steps {
  bool crop = true, rescale = true, normalize = true, square = false;
  std::string_view null_of_rescale = {}, null_of_normalize = {};  ///< null keys that these steps require
};

void read_size(const std::string& path, element value, bool square, ImageSettings& out) {
  std::int64_t shortest = 0;
  simdjson::dom::object object;
  const bool named = value.get_object().get(object) == simdjson::SUCCESS && object.size() == 1 &&
                     object["shortest_edge"].get_int64().get(shortest) == simdjson::SUCCESS;
  if (named || (!square && value.get_int64().get(shortest) == simdjson::SUCCESS)) {
    if (shortest < 1) throw_invalid(path, "size", "above 0", value);
    out.shortest_edge = shortest;
    return;
  }
  out.shortest_edge = 0;
  read_pair(path, "size", value, out.resize_height, out.resize_width);
}

/// In Transformers null does not mean the default: it means false, or missing if a value is required.
void read_null(const std::string& path, std::string_view key, element value, ImageSettings& out,
               Steps& given) {
  if (key == "do_center_crop") given.crop = false;
  if (key == "do_rescale") given.rescale = false;
  if (key == "do_normalize") given.normalize = false;
  if (key == "crop_size") out.height = out.width = 0;
  if (key == "rescale_factor") given.null_of_rescale = key;
  if (key == "image_mean" || key == "image_std") given.null_of_normalize = key;
  if (key == "do_resize") throw_invalid(path, key, "true", value);
  if (key == "size" || key == "resample") throw_invalid(path, key, "set, or left out", value);
}

void require_set(const std::string& path, std::string_view key, std::string_view flag) {
  if (!key.empty())
    throw ConfigError(
        fmt::format("{}: {} must be set with {}; got null; set it, or remove it", path, key, flag));
}

void read_key(const std::string& path, std::string_view key, element value, ImageSettings& out,
              Steps& given) {
  static const std::set<std::string_view> ignored{"image_processor_type", "feature_extractor_type",
                                                  "processor_class",      "_valid_processor_keys",
                                                  "default_to_square",    "data_format"};
  if (ignored.contains(key)) return;
  if (value.is_null()) return read_null(path, key, value, out, given);
  if (key == "size") {
    read_size(path, value, given.square, out);
  } else if (key == "crop_size") {
    read_pair(path, key, value, out.height, out.width);
  } else if (key == "resample") {
    std::int64_t filter = 0;
    if (value.get_int64().get(filter) != simdjson::SUCCESS || (filter != 3 && filter != 2))
      throw_invalid(path, key, "3, bicubic, or 2, bilinear", value);
    out.resample = filter == 3 ? Resample::kBicubic : Resample::kBilinear;
  } else if (key == "rescale_factor") {
    if (value.get_double().get(out.rescale) != simdjson::SUCCESS) throw_invalid(path, key, "a number", value);
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
    if (!flag(path, key, value)) throw_invalid(path, key, "true", value);
  } else {
    throw_invalid(path, key, "left out, since it is unknown", value);
  }
}

}  // namespace

ImageSettings read_image_settings(const std::filesystem::path& path) {
  const simdjson::padded_string text(read_file(path));
  simdjson::dom::parser parser;
  simdjson::dom::object root;
  if (const auto error = parser.parse(text).get_object().get(root); error != simdjson::SUCCESS)
    throw DataError(fmt::format("{} must be a JSON object; got {}; name a preprocessor_config.json",
                                path.string(), simdjson::error_message(error)));
  const Processor& type = processor_of(path.string(), root);
  ImageSettings settings{.shortest_edge = type.shortest_edge,
                         .resize_height = type.both,
                         .resize_width = type.both,
                         .height = type.crop,
                         .width = type.crop,
                         .mean = type.normalization.mean,
                         .std = type.normalization.std,
                         .resample = type.resample};
  Steps given{.crop = type.crop > 0, .square = type.square};
  if (element square; root["default_to_square"].get(square) == simdjson::SUCCESS && !square.is_null())
    given.square = flag(path.string(), "default_to_square", square);
  for (const auto field : root) read_key(path.string(), field.key, field.value, settings, given);
  if (given.rescale) require_set(path.string(), given.null_of_rescale, "do_rescale");
  if (given.normalize) require_set(path.string(), given.null_of_normalize, "do_normalize");
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
        fmt::format("{}: image_std must not be 0; got 0; set the values of the model's training", what));
}

}  // namespace colonnade::images
