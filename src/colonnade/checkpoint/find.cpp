// Chooses the checkpoint to load: the newest intact one, agreed on by all ranks.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/checkpoint/folders.h"
#include "colonnade/checkpoint/load.h"
#include "colonnade/checkpoint/manifest.h"
#include "colonnade/checkpoint/verify.h"

namespace colonnade::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

/// Step folders that rank 0 finds at the path, in the order in which they are tried.
struct Candidates {
  std::vector<std::string> folders;
  bool only_first = false;  ///< explicitly requested: no other is tried
  std::string problem;
};

/// `latest` first, then older steps, then steps newer than `latest` (of a run that was reset).
std::vector<std::string> in_order(const fs::path& checkpoints, std::map<std::int64_t, fs::path> steps) {
  std::vector<std::string> order;
  std::vector<std::string> newer;
  const std::optional<std::int64_t> latest = latest_step(checkpoints);
  if (latest && !steps.contains(*latest)) steps[*latest] = checkpoints / step_folder_name(*latest);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step)
    (latest && step->first > *latest ? newer : order).push_back(step->second.string());
  order.insert(order.end(), newer.begin(), newer.end());
  return order;
}

Candidates candidates(const fs::path& path, std::optional<std::int64_t> step) {
  if (const std::error_code fault = access_error(path); fault)
    return {{},
            true,
            fmt::format("{}: the folder must be readable; got {}; correct the path or its permissions",
                        path.string(), fault.message())};
  if (fs::exists(path / kManifestName) || (step_of_name(path.filename().string()) && fs::exists(path)))
    return {{path.string()}, true};
  const fs::path checkpoints = fs::is_directory(path / "checkpoints") ? path / "checkpoints" : path;
  const auto steps = step_folders(checkpoints);
  if (!step) return {in_order(checkpoints, steps)};
  if (!steps.contains(*step)) {
    std::vector<std::int64_t> there;
    for (const auto& [number, folder] : steps) there.push_back(number);
    return {{},
            true,
            fmt::format("{} must hold the checkpoint of step {}; got steps [{}]; choose one of them",
                        checkpoints.string(), *step, fmt::join(there, ", "))};
  }
  return {{steps.at(*step).string()}, true};
}

std::string to_text(const Candidates& all) {
  return json{{"folders", all.folders}, {"only_first", all.only_first}, {"problem", all.problem}}.dump();
}

Candidates agreed_candidates(const fs::path& path, std::optional<std::int64_t> step,
                             const comm::Group& world) {
  std::string text;
  if (world.rank() == 0) {
    try {
      text = to_text(candidates(strip_trailing_slash(path), step));
    } catch (const std::exception& e) {
      text = to_text(Candidates{.problem = e.what()});
    }
  }
  const json agreed = json::parse(world.all_gather_text(text, "checkpoint: candidates").at(0));
  return {agreed.at("folders").get<std::vector<std::string>>(), agreed.at("only_first").get<bool>(),
          agreed.at("problem").get<std::string>()};
}

/// Damage of `folder`, found by all ranks together; empty when it is intact.
std::string damage_text(const fs::path& folder, const comm::Group& world, Check check) {
  const std::vector<Damage> mine = damages(folder, check, world.rank(), world.size());
  for (const std::string& text :
       world.all_gather_text(mine.empty() ? "" : mine[0].text, "checkpoint: damage"))
    if (!text.empty()) return text;
  return {};
}

}  // namespace

std::optional<FoundCheckpoint> find_checkpoint(const fs::path& path, std::optional<std::int64_t> step,
                                               const comm::Group& world, Check check) {
  const Candidates all = agreed_candidates(path, step, world);
  if (!all.problem.empty()) throw DataError(all.problem);
  if (all.folders.empty()) return std::nullopt;
  FoundCheckpoint found;
  for (const std::string& folder : all.folders) {
    const std::string damage = damage_text(folder, world, check);
    if (damage.empty()) {
      found.folder = folder;
      found.step = read_manifest(folder).step;
      if (!found.skipped.empty() && world.rank() == 0) log::warning("{} is loaded instead", folder);
      return found;
    }
    if (all.only_first) throw DataError(damage);
    if (world.rank() == 0) log::warning("a damaged checkpoint is skipped: {}", damage);
    found.skipped.push_back(damage);
  }
  throw DataError(fmt::format(
      "{} must hold an intact checkpoint; got {} damaged ones, the first: {}; see `checkpoint verify`",
      path.string(), found.skipped.size(), found.skipped.front()));
}

}  // namespace colonnade::checkpoint
