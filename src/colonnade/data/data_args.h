// Data paths read from files: --data-args-path and --per-split-data-args-path.
// Source: Megatron's get_blend_and_blend_per_split (training/utils).
#pragma once

#include <string>
#include <vector>

#include "colonnade/config/training.h"

namespace colonnade::data {

/// The settings with --data-path, or --train/--valid/--test-data-path, read from the file that they name; the
/// file settings are cleared. --data-args-path holds words separated by white space;
/// --per-split-data-args-path holds JSON,
///   {"train": [0.3, "a", 0.7, "b"], "valid": "c", "test": null}
/// with a list of words and numbers, a string of words, or null for each split. Settings that name data in
/// more than one way are returned unchanged; a rule rejects them. Throws ConfigError for a file that is
/// unreadable, malformed or larger than 64 MB.
config::Data with_data_args(config::Data data);

}  // namespace colonnade::data
