// Examining checkpoints: contents, damage, differences.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/checkpoint/load.h"

namespace colonnade::checkpoint {

/// One fault. `kind` is "manifest" (unreadable, changed, chunks that do not cover a tensor once), "missing",
/// "size", "header", "tensor" (missing, unknown, other dtype or shape) or "checksum"; `where` is a file name,
/// `text` a sentence with path and values.
struct Damage {
  std::string kind;
  std::string where;
  std::string text;
};

/// Every damage of one step folder; empty when it is intact. kSizes reads the manifest, file sizes and
/// headers; kChecksums reads every byte. Never throws for damage. With `ranks` > 1 only every ranks-th file
/// is opened, starting with file `rank` (the ranks of a job share the work).
std::vector<Damage> damages(const std::filesystem::path& step_folder, Check check, int rank = 0,
                            int ranks = 1);

/// Verifies a step folder, or every checkpoint of a run folder, by checksums.
/// {"path", "ok", "checkpoints": [{"folder", "step", "ok", "bytes", "damages": [{kind, where, text}],
///  "notes"}], "notes"}: notes are sentences about harmless findings: unrelated files, leftovers of
///  interrupted
/// saves, a `latest` that names no checkpoint.
/// Throws DataError when there is nothing to check.
nlohmann::json verify(const std::filesystem::path& path);

/// {"folder", "step", "bytes", "parameters", "tensors": [{name, dtype, shape, bytes, chunks}], "files",
///  "state", "hf_config"} of a native checkpoint or a Hugging Face folder.
nlohmann::json inspect(const CheckpointReader& source);

/// {"a", "b", "equal", "only_a", "only_b", "tensors": [{name, ...}]}: one entry per tensor that differs
/// in dtype, shape or values, with "max_abs_difference", "differing" elements and "first" index; NaN
/// equals NaN.
nlohmann::json diff(const CheckpointReader& a, const CheckpointReader& b);

/// The three results as text for the terminal.
std::string verify_text(const nlohmann::json& result);
std::string inspect_text(const nlohmann::json& result);
std::string diff_text(const nlohmann::json& result);

}  // namespace colonnade::checkpoint
