// See verify.h: contents of a checkpoint, differences of two, and these results as text.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

#include "colonnade/base/error.h"
#include "colonnade/checkpoint/manifest.h"
#include "colonnade/checkpoint/verify.h"

namespace colonnade::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string size_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  int unit = 0;
  for (; bytes >= 1000 && unit < 4; ++unit) bytes /= 1000;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

/// Index of element number `flat` of `shape`.
Sizes unravel(std::int64_t flat, const Sizes& shape) {
  Sizes index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0; flat /= shape[d]) index[d] = flat % shape[d];
  return index;
}

/// A floating-point tensor in float64, any other unchanged, for comparison.
at::Tensor comparable(const at::Tensor& tensor) {
  return at::isFloatingType(tensor.scalar_type()) ? tensor.to(at::kDouble) : tensor;
}

/// Difference of the values of two tensors of equal shape; null when they are equal.
json value_difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = comparable(a).flatten();
  const at::Tensor y = comparable(b).flatten();
  at::Tensor differs = x.ne(y);
  if (x.is_floating_point() && y.is_floating_point())
    differs = differs.logical_and(x.isnan().logical_and(y.isnan()).logical_not());
  const auto count = differs.sum().item<std::int64_t>();
  if (count == 0) return nullptr;
  const auto first = differs.to(at::kByte).argmax().item<std::int64_t>();
  const at::Tensor distance = (x.to(at::kDouble) - y.to(at::kDouble)).abs().masked_select(differs);
  const auto largest = distance.max().item<double>();
  return {{"max_abs_difference", std::isfinite(largest) ? json(largest) : json(fmt::format("{}", largest))},
          {"differing", count},
          {"first", unravel(first, a.sizes().vec())}};
}

json tensor_difference(const CheckpointReader& a, const CheckpointReader& b, const std::string& name) {
  const TensorInfo x = a.info(name);
  const TensorInfo y = b.info(name);
  json result{{"name", name}};
  if (x.dtype != y.dtype) result["dtypes"] = {dtype_name(x.dtype), dtype_name(y.dtype)};
  if (x.shape != y.shape) {
    result["shapes"] = {x.shape, y.shape};
    return result;
  }
  if (const json values = value_difference(a.read(name), b.read(name)); !values.is_null())
    result.update(values);
  return result.size() > 1 ? result : json(nullptr);
}

}  // namespace

json inspect(const CheckpointReader& source) {
  std::map<std::string, std::size_t> chunks;
  json files = json::object();
  std::map<std::string, std::string> kinds;
  if (std::error_code absent; fs::exists(source.folder() / kManifestName, absent)) {
    const Manifest manifest = read_manifest(source.folder());
    for (const auto& [name, tensor] : manifest.tensors) {
      chunks[name] = tensor.chunks.size();
      kinds[name] = tensor.kind;
    }
    for (const auto& [name, sum] : manifest.files)
      files[name] = {{"bytes", sum.bytes}, {"xxh3_128", sum.xxh3_128}};
  }
  json tensors = json::array();
  std::int64_t bytes = 0;
  std::int64_t parameters = 0;
  for (const std::string& name : source.names()) {
    const TensorInfo info = source.info(name);
    const std::int64_t numel = Box{{}, info.shape}.numel();
    const bool is_state = name.starts_with("optimizer.");
    const std::string kind = kinds.contains(name) ? kinds[name] : is_state ? "optimizer" : "model";
    const std::int64_t size = numel * static_cast<std::int64_t>(c10::elementSize(info.dtype));
    bytes += size;
    if (kind == "model") parameters += numel;
    tensors.push_back({{"name", name},
                       {"kind", kind},
                       {"dtype", dtype_name(info.dtype)},
                       {"shape", info.shape},
                       {"bytes", size},
                       {"chunks", chunks.contains(name) ? chunks[name] : 1}});
  }
  return {{"folder", source.folder().string()},
          {"step", source.step()},
          {"bytes", bytes},
          {"parameters", parameters},
          {"tensors", tensors},
          {"files", files},
          {"state", source.state()},
          {"hf_config", source.hf_config()}};
}

json diff(const CheckpointReader& first, const CheckpointReader& second) {
  json result{{"a", first.folder().string()},
              {"b", second.folder().string()},
              {"only_a", json::array()},
              {"only_b", json::array()},
              {"tensors", json::array()}};
  for (const std::string& name : first.names()) {
    if (!second.has(name)) {
      result["only_a"].push_back(name);
    } else if (json difference = tensor_difference(first, second, name); !difference.is_null()) {
      result["tensors"].push_back(std::move(difference));
    }
  }
  for (const std::string& name : second.names())
    if (!first.has(name)) result["only_b"].push_back(name);
  result["equal"] = result["only_a"].empty() && result["only_b"].empty() && result["tensors"].empty();
  return result;
}

std::string verify_text(const json& result) {
  std::string text;
  for (const json& one : result.at("checkpoints")) {
    const bool ok = one.at("ok").get<bool>();
    text += fmt::format("{:<8} {}", ok ? "intact" : "damaged", one.at("folder").get<std::string>());
    text += one.contains("bytes") ? fmt::format("  {}\n", size_text(one.at("bytes").get<double>())) : "\n";
    for (const json& damage : one.at("damages"))
      text += fmt::format("  {}\n", damage.at("text").get<std::string>());
    for (const json& note : one.at("notes")) text += fmt::format("  note: {}\n", note.get<std::string>());
  }
  for (const json& note : result.at("notes")) text += fmt::format("note: {}\n", note.get<std::string>());
  return text;
}

std::string inspect_text(const json& result) {
  std::string text = fmt::format("{}\n", result.at("folder").get<std::string>());
  if (result.at("step").get<std::int64_t>() >= 0)
    text += fmt::format("step        {}\n", result.at("step").get<std::int64_t>());
  text += fmt::format("parameters  {}\nbytes       {}\n", result.at("parameters").get<std::int64_t>(),
                      size_text(result.at("bytes").get<double>()));
  for (const auto& [name, file] : result.at("files").items())
    text += fmt::format("file        {:<40} {:>10}\n", name, size_text(file.at("bytes").get<double>()));
  text += fmt::format("\n{:<9} {:<5} {:>10} {:>6}  {:<20} {}\n", "kind", "dtype", "size", "chunks", "shape",
                      "name");
  for (const json& tensor : result.at("tensors"))
    text += fmt::format("{:<9} {:<5} {:>10} {:>6}  {:<20} {}\n", tensor.at("kind").get<std::string>(),
                        tensor.at("dtype").get<std::string>(), size_text(tensor.at("bytes").get<double>()),
                        tensor.at("chunks").get<int>(), tensor.at("shape").dump(),
                        tensor.at("name").get<std::string>());
  if (!result.at("state").is_null()) text += fmt::format("\nstate\n{}\n", result.at("state").dump(2));
  if (!result.at("hf_config").is_null())
    text += fmt::format("\nconfig.json\n{}\n", result.at("hf_config").dump(2));
  return text;
}

std::string diff_text(const json& result) {
  if (result.at("equal").get<bool>()) return "equal: every tensor has the same dtype, shape and values\n";
  std::string text;
  for (const json& name : result.at("only_a"))
    text += fmt::format("only in the first   {}\n", name.get<std::string>());
  for (const json& name : result.at("only_b"))
    text += fmt::format("only in the second  {}\n", name.get<std::string>());
  for (const json& tensor : result.at("tensors")) {
    text += tensor.at("name").get<std::string>();
    if (tensor.contains("dtypes")) text += fmt::format("  dtypes {}", tensor.at("dtypes").dump());
    if (tensor.contains("shapes")) text += fmt::format("  shapes {}", tensor.at("shapes").dump());
    if (tensor.contains("differing"))
      text += fmt::format("  {} elements differ by up to {}, first at {}",
                          tensor.at("differing").get<std::int64_t>(), tensor.at("max_abs_difference").dump(),
                          tensor.at("first").dump());
    text += "\n";
  }
  return text;
}

}  // namespace colonnade::checkpoint
