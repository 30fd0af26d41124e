// Audit of the samples that a run has used, from ledger.jsonl and metrics.jsonl: the output of
// `colonnade data audit RUN`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

namespace colonnade::audit {

struct AuditOptions {
  /// Describes these training samples of the run, both ends included.
  std::optional<std::pair<std::int64_t, std::int64_t>> samples;
};

/// The audit of a run. Sample indices count from 0 in the run's order; a range [first, last] is inclusive.
/// {"run", "steps", "samples",
///  "sessions": [{"run", "began", "steps", "samples", "lost_samples", "from", "counted"}],
///     samples: those whose updates are in the weights; lost: computed by a session after the checkpoint that
///     a later one resumed from; counted: null, or {"step", "as"} of --override-ckpt-iteration
///  "before": null, or {"samples", "from"}: used before the first known session
///  "computed_again": [{"samples", "times"}], "lost": [range]  computed, and not in the weights; "held" where
///  the
///     weights contain more than one of the times
///  "skipped": {"steps", "ranges"}     steps without an update (gradients that are not finite)
///  "unrecorded": [range of steps]     without a line in metrics.jsonl
///  "data_sets": [{"name", "samples", "tokens", "epochs", "sequences", "read", "read_again", "most",
///                 "first_again"}]     training data; `read`: sequences with any token used as input;
///                 `read_again`, `most`: of those whose first token was an input more than once;
///                 `first_again`: the first sample with a repeated input token
///  "files": [{"path", "state", ...}]  state: "unchanged", "written again" (equal size and, as in ledger.h,
///                                     checksum), "changed" or "missing"
///  "problems": [sentence]             why datasets of a session are not counted
///  "shown": [...]                     for options.samples
/// Opens the data and its index caches as the run did. Memory: one metrics record per step, and that of
/// data::DatasetUsage. Throws DataError for a folder with no ledger or a damaged one, ConfigError for samples
/// that the run has not reached.
nlohmann::ordered_json audit(const std::filesystem::path& run, const AuditOptions& options);

/// The audit as text for the terminal.
std::string audit_text(const nlohmann::ordered_json& audit);

/// Whether data that the run read has changed or is missing.
bool data_changed(const nlohmann::ordered_json& audit);

}  // namespace colonnade::audit
