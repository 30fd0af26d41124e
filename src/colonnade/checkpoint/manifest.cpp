// See manifest.h.
#include "colonnade/checkpoint/manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/reason.h"
#include "colonnade/checkpoint/safetensors.h"

namespace colonnade::checkpoint {
namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "colonnade-checkpoint";
constexpr std::string_view kSumBegin = ",\n \"xxh3_128\": \"";
constexpr std::string_view kSumEnd = "\"\n}\n";
constexpr std::size_t kSumDigits = 32;

json to_json(const GlobalTensor& tensor) {
  json chunks = json::array();
  for (const Chunk& chunk : tensor.chunks)
    chunks.push_back(
        {{"file", chunk.file}, {"key", chunk.key}, {"offset", chunk.box.offset}, {"shape", chunk.box.shape}});
  return {{"kind", tensor.kind},
          {"dtype", dtype_name(tensor.dtype)},
          {"shape", tensor.shape},
          {"chunks", chunks}};
}

/// One line per tensor with its chunks: a manifest of thousands of tensors stays readable.
std::string lines_of(const json& object) {
  std::vector<std::string> lines;
  for (const auto& [key, value] : object.items())
    lines.push_back(fmt::format("  {}: {}", json(key).dump(), value.dump()));
  return lines.empty() ? "{}" : fmt::format("{{\n{}\n }}", fmt::join(lines, ",\n"));
}

GlobalTensor tensor_of(const json& value) {
  GlobalTensor tensor{.kind = value.at("kind").get<std::string>(), .shape = value.at("shape").get<Sizes>()};
  const auto dtype = dtype_of(value.at("dtype").get<std::string>());
  if (!dtype) throw DataError(fmt::format("the dtype must be known; got {}", value.at("dtype").dump()));
  if (tensor.kind != "model" && tensor.kind != "optimizer")
    throw DataError(fmt::format("the kind must be model or optimizer; got {}", tensor.kind));
  tensor.dtype = *dtype;
  std::vector<Box> boxes;
  for (const json& chunk : value.at("chunks")) {
    boxes.push_back({chunk.at("offset").get<Sizes>(), chunk.at("shape").get<Sizes>()});
    tensor.chunks.push_back(
        {chunk.at("file").get<std::string>(), chunk.at("key").get<std::string>(), boxes.back()});
  }
  if (const auto problem = coverage_problem(tensor.shape, boxes)) throw DataError(*problem);
  return tensor;
}

/// The text before the checksum. Throws unless the checksum is at the end and matches.
std::string_view checked_body(std::string_view text) {
  const std::size_t tail = kSumBegin.size() + kSumDigits + kSumEnd.size();
  if (text.size() < tail) throw DataError(fmt::format("{} bytes, too few for a checksum", text.size()));
  const std::string_view body = text.substr(0, text.size() - tail);
  const std::string_view rest = text.substr(body.size());
  if (!rest.starts_with(kSumBegin) || !rest.ends_with(kSumEnd)) throw DataError("no checksum at the end");
  const std::string_view expected = rest.substr(kSumBegin.size(), kSumDigits);
  if (const std::string found = checksum_of(body); found != expected)
    throw DataError(fmt::format("checksum {} in place of {}", found, expected));
  return body;
}

Manifest manifest_in(const json& document) {
  if (document.at("format") != kFormat)
    throw DataError(fmt::format("format {}", document.at("format").dump()));
  if (document.at("version") != kFormatVersion)
    throw DataError(fmt::format("format version {}, while this program reads {}",
                                document.at("version").dump(), kFormatVersion));
  Manifest manifest{.step = document.at("step").get<std::int64_t>(), .state = document.at("state")};
  for (const auto& [name, value] : document.at("files").items()) {
    if (!is_plain_name(name)) throw DataError(fmt::format("the file name '{}'", name));
    manifest.files[name] = {value.at("bytes").get<std::uint64_t>(), value.at("xxh3_128").get<std::string>()};
  }
  for (const auto& [name, value] : document.at("tensors").items()) {
    try {
      manifest.tensors[name] = tensor_of(value);
    } catch (const std::exception& e) {
      throw DataError(fmt::format("tensor '{}': {}", name, reason_of(e)));
    }
    for (const Chunk& chunk : manifest.tensors[name].chunks)
      if (!manifest.files.contains(chunk.file))
        throw DataError(fmt::format("tensor '{}' in the unlisted file '{}'", name, chunk.file));
  }
  return manifest;
}

}  // namespace

std::string to_text(const Manifest& manifest) {
  json tensors = json::object();
  for (const auto& [name, tensor] : manifest.tensors) tensors[name] = to_json(tensor);
  json files = json::object();
  for (const auto& [name, sum] : manifest.files)
    files[name] = {{"bytes", sum.bytes}, {"xxh3_128", sum.xxh3_128}};
  const std::string body = fmt::format(
      "{{\n \"format\": \"{}\",\n \"version\": {},\n \"step\": {},\n \"files\": {},\n \"state\": {},\n "
      "\"tensors\": {}",
      kFormat, kFormatVersion, manifest.step, lines_of(files), manifest.state.dump(), lines_of(tensors));
  return fmt::format("{}{}{}{}", body, kSumBegin, checksum_of(body), kSumEnd);
}

Manifest parse_manifest(std::string_view text, const std::filesystem::path& path) {
  try {
    return manifest_in(json::parse(std::string(checked_body(text)) + "}"));
  } catch (const std::exception& e) {
    throw DataError(fmt::format("{} must be a valid checkpoint manifest; got {}; load another checkpoint",
                                path.string(), reason_of(e)));
  }
}

Manifest read_manifest(const std::filesystem::path& step_folder) {
  const std::filesystem::path path = step_folder / kManifestName;
  return parse_manifest(read_file(path), path);
}

std::string chunk_key(const std::string& name, const Sizes& shape, const Box& box) {
  return box.shape == shape ? name : name + to_text(box);
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

}  // namespace colonnade::checkpoint
