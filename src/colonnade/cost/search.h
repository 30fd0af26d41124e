// Search for the fastest layouts of a model on a cluster, by estimated step time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/cost/describe.h"
#include "colonnade/cost/hardware.h"
#include "colonnade/cost/step_time.h"

namespace colonnade::cost {

/// A layout that fits.
struct FoundLayout {
  config::Run run;  ///< settings as a user would give them, not derived
  StepTime time;
  double peak_bytes = 0;  ///< max over ranks
};

struct SearchResult {
  std::int64_t candidates = 0;
  std::map<std::string, std::int64_t> rejected;  ///< by id of the first broken rule
  std::int64_t too_big = 0;                      ///< candidates that need more than Hardware::usable_bytes
  double smallest_bytes = 0;                     ///< smallest peak memory of those; 0: none
  /// Candidates slower than `keep` others that fit: pruned before their memory is planned, and before the
  /// rules are checked if their passes alone take longer.
  std::int64_t pruned = 0;
  std::int64_t fit = 0;           ///< remaining candidates
  std::vector<FoundLayout> best;  ///< fastest first; ties: less memory first
};

/// Evaluates, for the model, world size and global batch of `run` (not derived): every tensor, pipeline and
/// context size (up to 16, p2p or a2a); for models that dispatch tokens every ep size, etp on and off, both
/// dispatchers; 1F1B, interleaved and zero-bubble schedules with up to 16 virtual stages; embedding and loss
/// counted as layers or not, or the most even layout string if no such split is even (even_layout);
/// micro-batch sizes up to 16; sequence parallelism on and off; every data-parallel sharding
/// (all_data_shardings), with overlapped gradient reduction.
///
/// Layouts that do not fit are tried with selective, then with full recomputation (recompute_options), unless
/// the settings choose one. Other settings stay, except layout settings (uneven stages, layout strings);
/// sharding settings stay if typed on the command line. Returns at most `keep` layouts. Uses as many threads
/// as cores; the result does not depend on their number. Throws ConfigError without a global batch.
SearchResult search_layouts(const config::Run& run, const Hardware& hardware, std::size_t keep = 10);

/// Command-line flags that turn the settings `from` into `to`.
std::vector<std::string> flags_between(const config::Run& from, const config::Run& to);

/// A row per layout, with its largest losses against the first one.
Table search_table(const SearchResult& result);
/// Counts of candidates, then the table.
std::string search_text(const SearchResult& result, const Hardware& hardware);

}  // namespace colonnade::cost
