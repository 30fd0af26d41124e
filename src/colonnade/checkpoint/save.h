// Saving: all ranks write into a staging folder, which rank 0 publishes by one rename.
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

/// One rank's share of a checkpoint. Names are unique over both lists; all slices of a name have one dtype
/// and one global shape.
struct Snapshot {
  std::vector<Slice> model;      ///< Hugging Face names; each tensor is written unsharded by one rank
  std::vector<Slice> optimizer;  ///< our names ("optimizer.STATE.NAME"); each rank writes its own chunks
  nlohmann::json state;          ///< schedule, counters, seed, settings, of rank 0
  nlohmann::json hf_config;      ///< config.json of the step folder, rank 0's; null: none
  /// Contents of other small files of the step folder by plain name, of rank 0. None has the name or
  /// extension of a checkpoint's own files.
  std::map<std::string, std::string> files;
};

struct SaveOptions {
  /// Older checkpoints whose step is not a multiple of this are deleted after a save; 0 keeps all.
  std::int64_t retain_interval = 0;
  /// Writes a Hugging Face folder with this name in place of a checkpoint: the model's tensors, index, config
  /// and other files, without manifest and `latest`. Empty: a checkpoint.
  std::filesystem::path export_folder;
  /// For tests: called on every rank at each of kSavePoints. An exception counts as a failed write of that
  /// rank.
  std::function<void(std::string_view point)> on_point;
};

/// In order. "manifest", "rename", "renamed" and "latest" are reached by rank 0 only.
inline constexpr std::string_view kSavePoints[] = {
    "begin",     // nothing is written yet
    "staged",    // the staging folder exists
    "writing",   // this rank's model file is written, its optimizer file is not
    "written",   // all files of this rank are written and synced
    "manifest",  // about to write index, config and manifest
    "rename",    // the staging folder is complete, about to be renamed
    "renamed",   // published; `latest` still points to the previous step
    "latest",    // `latest` points to the new step; about to delete old ones
};

/// Result of a save, equal on all ranks except for `seconds`.
struct SaveResult {
  bool ok = true;
  std::string problem;           ///< why there is no new checkpoint: rank, path and reason
  int code = 0;                  ///< exit code of the problem: 2 for a full disk, else 1
  std::filesystem::path folder;  ///< run_folder/checkpoints/step_XXXXXXXX
  std::uint64_t bytes = 0;       ///< total size of all ranks' files
  double seconds = 0;            ///< on this rank
};

/// Writes run_folder/checkpoints/step_XXXXXXXX and points `checkpoints/latest` to it.
///
/// Collective over `world`, whose groups must support CPU tensors (gloo or threads, also for GPU jobs).
/// Communication: one all_gather_text of slice descriptions, each model slice once to the rank that writes
/// its tensor, three all_gather_text of results. Memory: one full tensor and 256 MB of slices in flight. A
/// crash at any point leaves no folder under the final name, or a complete one. When a write fails on any
/// rank, the staging folder is removed and all ranks get the problem, so that training can continue. Throws
/// Error, before anything is written and on all ranks, when an element of a tensor does not have exactly one
/// owner; CommError when a rank is lost.
SaveResult save(const std::filesystem::path& run_folder, std::int64_t step, const Snapshot& snapshot,
                const comm::Group& world, const SaveOptions& options = {});

}  // namespace colonnade::checkpoint
