// Suggestions for unknown flags.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "colonnade/config/use.h"

namespace colonnade::config {

/// The flag most similar to an unknown one, among a verb's `own` flags (preferred) and the settings read by
/// `use`, by known foreign names, typos or common words. May be "--a or --b". "" if none is similar.
std::string nearest(std::string_view flag, const std::vector<std::string>& own = {}, Use use = Use::kTrain);

}  // namespace colonnade::config
