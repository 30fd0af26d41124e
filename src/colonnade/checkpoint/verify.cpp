// See verify.h: damage of checkpoints.
#include "colonnade/checkpoint/verify.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "colonnade/base/error.h"
#include "colonnade/base/reason.h"
#include "colonnade/checkpoint/folders.h"
#include "colonnade/checkpoint/manifest.h"

namespace colonnade::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Expected chunks of each file, by key.
using ExpectedChunks = std::map<std::string, std::map<std::string, std::pair<at::ScalarType, Sizes>>>;

ExpectedChunks expected_chunks(const Manifest& manifest) {
  ExpectedChunks expected;
  for (const auto& [name, tensor] : manifest.tensors)
    for (const Chunk& chunk : tensor.chunks)
      expected[chunk.file][chunk.key] = {tensor.dtype, chunk.box.shape};
  return expected;
}

void check_header(const fs::path& path, const ExpectedChunks::mapped_type& chunks,
                  std::vector<Damage>& found) {
  const SafetensorsFile file(path);
  const std::string name = path.filename().string();
  for (const auto& [key, expected] : chunks) {
    const auto stored = file.tensors().find(key);
    if (stored == file.tensors().end()) {
      found.push_back(
          {"tensor", name,
           fmt::format("{}: the manifest's tensor '{}' must exist; got none", path.string(), key)});
    } else if (stored->second.dtype != expected.first || stored->second.shape != expected.second) {
      found.push_back({"tensor", name,
                       fmt::format("{}: '{}' must be {} of [{}]; got {} of [{}]", path.string(), key,
                                   dtype_name(expected.first), fmt::join(expected.second, ", "),
                                   dtype_name(stored->second.dtype), fmt::join(stored->second.shape, ", "))});
    }
  }
  for (const auto& [key, info] : file.tensors())
    if (!chunks.contains(key))
      found.push_back(
          {"tensor", name,
           fmt::format("{}: every tensor must be in the manifest; got '{}'", path.string(), key)});
}

void check_file(const fs::path& path, const FileChecksum& sum, const ExpectedChunks& expected, Check check,
                std::vector<Damage>& found) {
  const std::string name = path.filename().string();
  std::error_code missing;
  if (!fs::is_regular_file(path, missing)) {
    found.push_back({"missing", name, fmt::format("{} must exist; got no such file", path.string())});
    return;
  }
  if (const auto size = fs::file_size(path); size != sum.bytes) {
    found.push_back(
        {"size", name, fmt::format("{} must have {} bytes; got {}", path.string(), sum.bytes, size)});
    return;
  }
  const std::size_t before = found.size();
  if (path.extension() == ".safetensors") {
    try {
      const auto chunks = expected.find(name);
      check_header(path, chunks == expected.end() ? ExpectedChunks::mapped_type{} : chunks->second, found);
    } catch (const DataError& e) {
      found.push_back({"header", name, reason_of(e)});
    }
  }
  if (check == Check::kSizes || found.size() != before) return;
  if (const FileChecksum got = file_checksum(path); got != sum)
    found.push_back({"checksum", name,
                     fmt::format("{}: its contents have changed; XXH3 checksum must be {}; got {}",
                                 path.string(), sum.xxh3_128, got.xxh3_128)});
}

json damage_json(const std::vector<Damage>& found) {
  json list = json::array();
  for (const Damage& damage : found)
    list.push_back({{"kind", damage.kind}, {"where", damage.where}, {"text", damage.text}});
  return list;
}

json verify_step(const fs::path& folder) {
  const std::vector<Damage> found = damages(folder, Check::kChecksums);
  json result{{"folder", folder.string()}, {"ok", found.empty()}, {"damages", damage_json(found)}};
  json notes = json::array();
  try {
    const Manifest manifest = read_manifest(folder);
    std::uint64_t bytes = 0;
    for (const auto& [name, sum] : manifest.files) bytes += sum.bytes;
    result["step"] = manifest.step;
    result["bytes"] = bytes;
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (name != kManifestName && !manifest.files.contains(name))
        notes.push_back(fmt::format("{} is not a file of the checkpoint", entry.path().string()));
    }
  } catch (const std::exception&) {  // already among the damages
  }
  result["notes"] = notes;
  return result;
}

json notes_of(const fs::path& checkpoints, const std::map<std::int64_t, fs::path>& steps) {
  json notes = json::array();
  for (const fs::path& leftover : leftovers(checkpoints))
    notes.push_back(
        fmt::format("{} is left over from an interrupted save; the next save removes it", leftover.string()));
  const auto latest = latest_step(checkpoints);
  if (!latest)
    notes.push_back(fmt::format("{} names no checkpoint; the newest intact one is loaded",
                                (checkpoints / "latest").string()));
  else if (!steps.contains(*latest))
    notes.push_back(fmt::format("{} names step {}, which does not exist; the newest intact one is loaded",
                                (checkpoints / "latest").string(), *latest));
  return notes;
}

}  // namespace

std::vector<Damage> damages(const fs::path& step_folder, Check check, int rank, int ranks) {
  std::vector<Damage> found;
  try {
    const Manifest manifest = read_manifest(step_folder);
    if (const auto step = step_of_name(step_folder.filename().string()); step && *step != manifest.step)
      found.push_back({"manifest", std::string(kManifestName),
                       fmt::format("{} must hold step {} as its name says; got {}", step_folder.string(),
                                   *step, manifest.step)});
    const ExpectedChunks expected = expected_chunks(manifest);
    int number = 0;
    for (const auto& [name, sum] : manifest.files)
      if (number++ % ranks == rank) check_file(step_folder / name, sum, expected, check, found);
  } catch (const std::exception& e) {
    found.push_back({"manifest", std::string(kManifestName), reason_of(e)});
  }
  return found;
}

json verify(const fs::path& typed) {
  const fs::path path = strip_trailing_slash(typed);
  json result{{"path", path.string()}, {"checkpoints", json::array()}, {"notes", json::array()}};
  if (fs::exists(path / kManifestName) ||
      (step_of_name(path.filename().string()) && fs::is_directory(path))) {
    result["checkpoints"].push_back(verify_step(path));
  } else {
    const fs::path checkpoints = fs::is_directory(path / "checkpoints") ? path / "checkpoints" : path;
    const auto steps = step_folders(checkpoints);
    if (steps.empty())
      throw DataError(fmt::format(
          "{} must be a run folder with checkpoints or a step folder; got neither; check the path",
          path.string()));
    for (const auto& [step, folder] : steps) result["checkpoints"].push_back(verify_step(folder));
    result["notes"] = notes_of(checkpoints, steps);
  }
  result["ok"] = true;
  for (const json& one : result["checkpoints"])
    if (!one["ok"]) result["ok"] = false;
  return result;
}

}  // namespace colonnade::checkpoint
