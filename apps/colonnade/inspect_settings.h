// Settings of `colonnade data inspect`: run settings that determine samples, and the verb's own flags.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/config/parse.h"
#include "colonnade/data/split.h"
#include "verbs.h"

namespace colonnade::app {

/// Flags of `data inspect`.
struct InspectOptions {
  std::string json;
  data::Split split = data::Split::kTrain;
  std::int64_t samples = 0;           ///< samples of the split; 0: none are built
  bool uses_default_samples = false;  ///< neither --samples nor the settings give a number
  bool one_pass = false;              ///< --full-validation: the data determine `samples`
  std::int64_t show = 3, from = 0, show_tokens = 16;
  std::int64_t longer_than = 0;
  bool check_tokens = false;

  /// One past the last sample to show.
  [[nodiscard]] std::int64_t shown_end() const {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    return from > kMost - show ? kMost : from + show;
  }
  [[nodiscard]] std::size_t split_index() const { return static_cast<std::size_t>(split); }
  [[nodiscard]] const char* split_name() const { return data::kSplitNames[split_index()]; }
};

struct Inspection {
  config::Run run;  ///< valid and complete in the settings that determine samples
  InspectOptions options;
};

/// Data paths of the split; empty with --mock-data.
const std::vector<std::string>& paths_of(const config::Run& run, data::Split split);

/// Flags of the verb itself.
const std::vector<config::VerbFlag>& inspect_extras();

/// Throws ConfigError with every error, flags without effect included.
Inspection read_inspection(const Arguments& arguments);

}  // namespace colonnade::app
