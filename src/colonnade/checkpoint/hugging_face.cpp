// See hugging_face.h.
#include "colonnade/checkpoint/hugging_face.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/base/file_kind.h"
#include "colonnade/base/files.h"
#include "colonnade/base/reason.h"
#include "colonnade/checkpoint/manifest.h"

namespace colonnade::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kConfig = "config.json";
constexpr std::string_view kWeights = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";

bool has(const fs::path& folder, std::string_view name) {
  std::error_code unreadable;
  return fs::exists(folder / name, unreadable);
}

/// Unsupported weight formats, recognized by file names.
struct Format {
  std::string_view begin, end;  ///< of the file name
  bool beside_config;           ///< recognized only next to config.json
  std::string_view kind;
  std::string_view fix;
};
constexpr std::string_view kResave =
    "save them as safetensors: load the folder with Transformers and call save_pretrained(NEW_FOLDER)";
constexpr std::string_view kGetHuggingFace =
    "download the model's Hugging Face form, or convert them with Transformers";
constexpr Format kFormats[] = {
    {"adapter_model", "", false, "the weights of a PEFT adapter",
     "merge them into their base model with PEFT's merge_and_unload() and name the folder saved from that"},
    {"adapter_config.json", "", false, "the settings of a PEFT adapter",
     "merge the adapter into its base model with PEFT's merge_and_unload() and name the folder saved from that"},
    {"pytorch_model", ".bin", false, "a PyTorch pickle", kResave},
    {"pytorch_model", ".bin.index.json", false, "an index of PyTorch pickles", kResave},
    {"tf_model", ".h5", false, "TensorFlow weights", kResave},
    {"flax_model", ".msgpack", false, "Flax weights", kResave},
    {"", ".gguf", false, "a GGUF file",
     "save them as safetensors: load it with Transformers' gguf_file=... and call save_pretrained(NEW_FOLDER)"},
    {"consolidated", ".pth", false, "the original format of its authors", kGetHuggingFace},
    {"consolidated", ".safetensors", false, "the original format of its authors", kGetHuggingFace},
    {"model-", ".safetensors", false, "a shard without model.safetensors.index.json",
     "download the index too, or save the model again"},
    {"model_", ".safetensors", false, "a shard without model.safetensors.index.json",
     "download the index too, or save the model again"},
    {"", ".safetensors", true, "weights under another name",
     "name the file model.safetensors if it holds the full model"},
    {"", ".nemo", false, "a NeMo archive", "export it to Hugging Face with NeMo"},
    {"", ".onnx", false, "an ONNX graph", kGetHuggingFace},
    {"", ".bin", true, "a PyTorch pickle", kResave},
    {"", ".pt", true, "a PyTorch pickle", kResave},
    {"", ".pth", true, "a PyTorch pickle", kResave},
    {"", ".ckpt", true, "a PyTorch pickle", kResave},
    {"", ".pkl", true, "a Python pickle", kResave},
    {"", ".npz", true, "NumPy arrays", kResave},
};

/// Fault of the first file with weights in an unsupported format; "" without one.
std::string format_fault(const fs::path& folder, const std::vector<std::string>& names) {
  const bool with_config = has(folder, kConfig);
  for (const Format& format : kFormats) {
    const auto found = std::ranges::find_if(names, [&](const std::string& name) {
      return name.size() >= format.begin.size() + format.end.size() && name.starts_with(format.begin) &&
             name.ends_with(format.end);
    });
    if (found == names.end() || (format.beside_config && !with_config)) continue;
    return fmt::format("{}: weights must be in model.safetensors; got {}, {}, which is not supported; {}",
                       folder.string(), *found, format.kind, format.fix);
  }
  return "";
}

/// A subfolder of `folder` with safetensors weights, or one level deeper as in a download cache; "" where
/// there is none.
std::string inner_folder(const fs::path& folder, int levels = 2) {
  for (const std::string& name : names_in(folder)) {
    std::error_code unreadable;
    const fs::path inner = folder / name;
    if (!fs::is_directory(inner, unreadable) || has(inner, kManifestName)) continue;
    if (has(inner, kWeights) || has(inner, kIndex)) return inner.string();
    if (levels > 1)
      if (std::string deeper = inner_folder(inner, levels - 1); !deeper.empty()) return deeper;
  }
  return "";
}

/// Fault of a `path` that is a file; names its folder where that holds a model.
std::string file_fault(const fs::path& path) {
  char begin[1024];
  std::ifstream file(path, std::ios::binary);
  file.read(begin, sizeof begin);
  const std::string_view kind = file_kind({begin, static_cast<std::size_t>(file.gcount())});
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  return fmt::format("{} must be a folder; got {}; name the folder of a model or run{}", path.string(),
                     kind.empty() ? "a file" : kind,
                     is_hugging_face_folder(folder) ? fmt::format(", {}", folder.string()) : "");
}

/// The file of every tensor, from an index.
std::map<std::string, std::string> weight_map(const fs::path& path) {
  try {
    auto map = read_json(path).at("weight_map").get<std::map<std::string, std::string>>();
    for (const auto& [name, file] : map)
      if (!is_plain_name(file))
        throw DataError(fmt::format("{}: file names must be plain; got '{}'", path.string(), file));
    return map;
  } catch (const json::exception& e) {
    throw DataError(fmt::format("{} must hold a weight_map of strings; got {}; copy it again", path.string(),
                                reason_of(e)));
  }
}

/// `text` with null in place of Infinity, -Infinity and NaN outside strings, which Python writes into JSON.
std::string without_infinities(const std::string& text) {
  constexpr std::string_view kNumbers[] = {"-Infinity", "Infinity", "NaN"};
  std::string result;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view rest = std::string_view(text).substr(at);
    const auto* number =
        in_string
            ? std::end(kNumbers)
            : std::ranges::find_if(kNumbers, [&](std::string_view one) { return rest.starts_with(one); });
    if (number != std::end(kNumbers)) {
      result += "null";
      at += number->size();
      continue;
    }
    if (in_string && text[at] == '\\' && at + 1 < text.size())
      result += text[at++];  // the escaped character follows
    else if (text[at] == '"')
      in_string = !in_string;
    result += text[at++];
  }
  return result;
}

}  // namespace

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code unreadable;
  for (const auto& entry : fs::directory_iterator(folder, unreadable))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

std::string first_names(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 4;
  const auto end = names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kShown));
  return fmt::format("{}{}", fmt::join(names.begin(), end, ", "), names.size() > kShown ? ", ..." : "");
}

bool is_hugging_face_folder(const fs::path& path) {
  return has(path, kConfig) && !has(path, kManifestName) && (has(path, kWeights) || has(path, kIndex));
}

std::string unsupported_weights_fault(const fs::path& path) {
  std::error_code unreadable;
  if (fs::is_regular_file(path, unreadable)) return file_fault(path);
  if (is_hugging_face_folder(path)) return "";
  if (!has(path, kConfig) && (has(path, kWeights) || has(path, kIndex)))
    return fmt::format("{}: weights must be next to their config.json; got none; download it into the folder",
                       path.string());
  if (std::string fault = format_fault(path, names_in(path)); !fault.empty()) return fault;
  if (const std::string inner = inner_folder(path); !inner.empty())
    return fmt::format("{}: config.json and model.safetensors must be in the folder; got weights in {}; {}",
                       path.string(), inner,
                       is_hugging_face_folder(inner) ? "name that folder" : "put both into one folder");
  if (has(path, kConfig))
    return fmt::format(
        "{}: model.safetensors must be next to config.json; got no weights; download them into the folder",
        path.string());
  return "";
}

Shards shards_of(const fs::path& folder) {
  if (has(folder, kWeights)) return {{{std::string(kWeights), {}}}, {}};
  if (!has(folder, kIndex))
    throw DataError(fmt::format("{} must hold {} or {}; got neither; save the model with save_pretrained",
                                folder.string(), kWeights, kIndex));
  Shards shards;
  for (const auto& [name, file] : weight_map(folder / kIndex)) shards.files[file].push_back(name);
  std::vector<std::string> missing;
  for (const auto& [file, names] : shards.files)
    if (!has(folder, file)) missing.push_back(file);
  if (!missing.empty())
    throw DataError(
        fmt::format("{}: every file in {} must exist; got {} of {} missing: {}; download them again",
                    folder.string(), kIndex, missing.size(), shards.files.size(), first_names(missing)));
  for (const std::string& name : names_in(folder))
    if (name.starts_with("model-") && name.ends_with(".safetensors") && !shards.files.contains(name))
      shards.unlisted.push_back(name);
  return shards;
}

json read_json(const fs::path& path) {
  const std::string text = without_infinities(read_file(path));
  std::vector<std::set<std::string>> keys;  // of the open objects
  const auto check = [&](int, json::parse_event_t event, const json& parsed) {
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second)
      throw DataError(fmt::format("{} must have each key once; got {} twice; remove the wrong one",
                                  path.string(), parsed.dump()));
    return true;
  };
  try {
    return json::parse(text, check);
  } catch (const json::exception& e) {
    const std::string_view kind = file_kind(std::string_view(text).substr(0, 1024));
    throw DataError(fmt::format("{} must be JSON; got {}; write or copy it again", path.string(),
                                kind.empty() ? reason_of(e) : std::string(kind)));
  }
}

}  // namespace colonnade::checkpoint
