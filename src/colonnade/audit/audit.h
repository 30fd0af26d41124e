// Which samples a run has used: what `colonnade data audit RUN` prints, out of ledger.jsonl and
// metrics.jsonl.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

namespace colonnade::audit {

struct AuditOptions {
  /// These training samples of the run, both ends included: what each is made of.
  std::optional<std::pair<std::int64_t, std::int64_t>> samples;
};

/// Numbers of samples count from 0 in the run's order; a range [first, last] has both ends.
/// {"run", "steps", "samples",
///  "sessions": [{"run", "began", "steps", "samples", "lost_samples", "from", "counted"}],
///     samples: those whose updates the weights hold; lost: computed by a session after the checkpoint that a
///     later one went on from; counted: null, or {"step", "as"} of --override-ckpt-iteration
///  "before": null, or {"samples", "from"}: used before the first session that is known
///  "computed_again": [{"samples", "times"}], "lost": [range]  computed, and not in the weights; "held" where
///  the
///     weights hold more than one of the times
///  "skipped": {"steps", "ranges"}     steps without an update (gradients that are not finite)
///  "unrecorded": [range of steps]     without a line in metrics.jsonl
///  "data_sets": [{"name", "samples", "tokens", "epochs", "sequences", "read", "read_again", "most",
///                 "first_again"}]     of the training data; `read`: sequences of which any token was an
///                 input; `read_again`, `most`: of those whose first token was one again; `first_again`:
///                 the first sample with an input that was one before
///  "files": [{"path", "state", ...}]  state: "unchanged", "written again" (equal size, and checksum as in
///                                     ledger.h), "changed" or "missing"
///  "problems": [sentence]             why data sets of a session are not counted
///  "shown": [...]                     for options.samples
/// Opens the data, and with it their index caches, as the run did. Memory: a line of metrics for each step,
/// and as data::SetUse. Throws DataError for a folder without a ledger or with a damaged one,
/// ConfigError for samples that the run has not come to.
nlohmann::ordered_json audit(const std::filesystem::path& run, const AuditOptions& options);

/// The same for a person.
std::string audit_text(const nlohmann::ordered_json& audit);

/// Whether what the run read is no longer there as it was.
bool data_changed(const nlohmann::ordered_json& audit);

}  // namespace colonnade::audit
