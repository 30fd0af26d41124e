// A run as YAML that can be run unchanged.
#pragma once

#include <map>
#include <string>

#include "colonnade/config/run.h"

namespace colonnade::config {

/// All settings by group, one `key: value` per line; unset ones as `null`. Parsing it gives an equal run.
std::string dump(const Run& run);

/// All set settings as text by key. Stored in checkpoints and compared between ranks.
std::map<std::string, std::string> values(const Run& run);

}  // namespace colonnade::config
