// Saving: all ranks write into a staging folder, rank 0 publishes it by one rename.
// docs/formats/checkpoint.md describes the files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/checkpoint/folders.h"
#include "colonnade/checkpoint/slice.h"
#include "colonnade/comm/group.h"

namespace colonnade::checkpoint {

/// What one rank gives to a checkpoint. Names are unique over both lists; all slices of a name have
/// one dtype and one global shape.
struct Snapshot {
  std::vector<Slice> model;      ///< Hugging Face names; each tensor is written whole by one rank
  std::vector<Slice> optimizer;  ///< our names ("optimizer.exp_avg. ..."); written in chunks where they are
  nlohmann::json state;          ///< schedule, counters, seed, settings; rank 0's is kept
  nlohmann::json hf_config;      ///< config.json of the step folder, rank 0's; null: none
  /// Bytes of further small files of the step folder by plain name, rank 0's. None has a name or an ending of
  /// the files of a checkpoint.
  std::map<std::string, std::string> files;
};

struct SaveOptions {
  /// Older checkpoints whose step is no multiple of this are deleted after a save; 0 keeps all.
  std::int64_t retain_interval = 0;
  /// For tests: called on every rank when it reaches a point of kSavePoints. What it throws is
  /// treated as a failed write of that rank.
  std::function<void(std::string_view point)> at;
};

/// In order. "renamed" and "latest" are reached by rank 0 only, and so are "manifest" and "rename".
inline constexpr std::string_view kSavePoints[] = {
    "begin",     // nothing was written
    "staged",    // the staging folder exists
    "writing",   // the model file of this rank is written, its optimizer file is not
    "written",   // all files of this rank are written and synced
    "manifest",  // about to write index, config and manifest
    "rename",    // the staging folder is whole, about to be renamed
    "renamed",   // published; `latest` still names the one before
    "latest",    // `latest` names it; about to delete old ones
};

/// Equal on all ranks.
struct SaveResult {
  bool ok = true;
  std::string problem;           ///< why there is no new checkpoint: which rank, which path, which reason
  std::filesystem::path folder;  ///< run_folder/checkpoints/step_XXXXXXXX
  std::uint64_t bytes = 0;       ///< of all files of all ranks
  double seconds = 0;            ///< on this rank
};

/// Writes run_folder/checkpoints/step_XXXXXXXX and makes `checkpoints/latest` name it.
///
/// Collective over `world`, whose groups carry CPU tensors (gloo or threads also for GPU jobs).
/// Communication: one all_gather_text of slice descriptions, each model slice once to the rank that
/// writes its tensor, three all_gather_text of results. Memory: one whole tensor and 256 MB of slices
/// under way.
/// A crash at any line leaves either no folder under the final name or a whole one. When a write fails
/// on any rank, the staging folder is removed and all ranks get the problem, so that training can go on.
/// Throws Error, before anything is written and on all ranks, when some element of some tensor does not
/// have exactly one owner; CommError when a rank is lost.
SaveResult save(const std::filesystem::path& run_folder, std::int64_t step, const Snapshot& snapshot,
                const comm::Group& world, const SaveOptions& options = {});

}  // namespace colonnade::checkpoint
