// The fastest layouts of a model on a cluster, by estimate, and why the others lose.
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
  config::Run run;  ///< as it could have been given: not derived
  StepTime time;
  double peak_bytes = 0;  ///< of the fullest rank
};

struct SearchResult {
  std::int64_t candidates = 0;
  std::map<std::string, std::int64_t> refused;  ///< by id, the first rule that each of them breaks
  std::int64_t too_big = 0;                     ///< candidates that need more than Hardware::usable_bytes
  double smallest_bytes = 0;                    ///< what the smallest of these needs; 0: none
  /// Candidates that take longer than `keep` others that fit: left alone without asking what they need, and
  /// where their passes alone take longer, without asking whether they break a rule.
  std::int64_t slower = 0;
  std::int64_t fit = 0;           ///< all others
  std::vector<FoundLayout> best;  ///< fastest first; of two that are equally fast, the one with less memory
};

/// Tries, for the model, world size and global batch of `run` (not derived), every tensor, pipeline and
/// context size (up to 16, keys handed round or heads exchanged), of mixtures every expert size, experts of
/// tensor ranks whole or cut, both dispatchers; 1F1B, interleaved and the zero-bubble schedules with virtual
/// stages up to 16, embedding and loss as layers or not, or layers as evenly as they go where no such split
/// is even (even_layout), micro-batches up to 16, sequence parallelism on and off, and every way in which
/// ranks share what they hold alike (all_shares); gradients travel beside the passes. What does not fit is
/// tried with parts of layers made again, then with whole layers (ways_to_make_again), unless the settings
/// say what is. What else they say stays, but for those of a layout (uneven stages, layout strings); of what
/// ranks share, what is typed on the command line. At most `keep` are returned. As many threads as
/// cores; the result does not depend on their number. Throws ConfigError without a global batch.
SearchResult search_layouts(const config::Run& run, const Hardware& hardware, std::size_t keep = 10);

/// Words that turn the settings `from` into those of `to` on a command line.
std::vector<std::string> flags_between(const config::Run& from, const config::Run& to);

/// A row per layout, with what makes it slower than the first one.
Table search_table(const SearchResult& result);
/// Counts of all candidates, then the table.
std::string search_text(const SearchResult& result, const Hardware& hardware);

}  // namespace colonnade::cost
