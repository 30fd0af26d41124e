// See verify.h.
#include "colonnade/convert/megatron/verify.h"

#include "colonnade/base/error.h"
#include "colonnade/convert/megatron/reader.h"

namespace colonnade::convert::megatron {

nlohmann::json verify(const std::filesystem::path& path) {
  using nlohmann::json;
  const auto found = find_folder(path, std::nullopt);
  if (!found) return nullptr;
  json damages = json::array();
  std::uint64_t bytes = 0;
  try {
    const checkpoint::CheckpointReader source = open(*found);
    for (const std::string& name : source.names()) bytes += source.read(name).nbytes();
  } catch (const DataError& error) {
    damages.push_back({{"kind", "tensor"}, {"where", found->folder.string()}, {"text", error.what()}});
  }
  const bool ok = damages.empty();
  json one = {{"folder", found->folder.string()},
              {"ok", ok},
              {"bytes", bytes},
              {"damages", damages},
              {"notes", {"Megatron's format has no checksums: files, frames and shapes were checked"}}};
  return {{"ok", ok}, {"checkpoints", {one}}, {"notes", json::array()}};
}

}  // namespace colonnade::convert::megatron
