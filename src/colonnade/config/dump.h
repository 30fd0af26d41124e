// A run as YAML that runs as it is.
#pragma once

#include <map>
#include <string>

#include "colonnade/config/run.h"

namespace colonnade::config {

/// Every setting by group, one `key: value` a line; unset ones as `null`. parse of this gives an
/// equal run.
std::string dump(const Run& run);

/// The same as text by key, unset ones left out: what a checkpoint keeps and ranks compare.
std::map<std::string, std::string> values(const Run& run);

}  // namespace colonnade::config
