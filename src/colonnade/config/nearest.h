// What an unknown flag most likely means.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "colonnade/config/use.h"

namespace colonnade::config {

/// The nearest of a verb's `own` flags, which go first, and of the settings that `use` reads, by name, typing
/// error or words in common; it may be "one or another". "" for none.
std::string nearest(std::string_view flag, const std::vector<std::string>& own = {}, Use use = Use::kTrain);

}  // namespace colonnade::config
