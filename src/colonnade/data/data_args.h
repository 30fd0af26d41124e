// Files with the words of data paths: --data-args-path and --per-split-data-args-path.
// Source: Megatron's get_blend_and_blend_per_split (training/utils).
#pragma once

#include <string>
#include <vector>

#include "colonnade/config/training.h"

namespace colonnade::data {

/// Settings whose words stand where those of --data-path, or of --train-data-path and its kin, do: the names
/// of the files are gone. --data-args-path holds words between white space; --per-split-data-args-path JSON
///   {"train": [0.3, "a", 0.7, "b"], "valid": "c", "test": null}
/// with a list of words and numbers, a text of words, or null for each split. Settings that name data in more
/// than one way come back as they are; a rule refuses them. Throws ConfigError for a file that cannot be read
/// or holds something else, and for one of more than 64 MB.
config::Data with_data_args(config::Data data);

}  // namespace colonnade::data
