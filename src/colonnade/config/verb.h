// How the words after one verb are read: an unknown flag is compared with what that verb takes.
#pragma once

#include "colonnade/config/parse.h"
#include "colonnade/config/use.h"

namespace colonnade::config {

/// parse_all of a verb with flags of its own and with the settings that `use` reads.
Parsed parse_all(const std::vector<std::string>& arguments, const std::vector<Extra>& extras, Use use);

/// The nearest of a verb's `own` flags, which go first, and of the settings that `use` reads; "" for none.
std::string nearest(std::string_view flag, const std::vector<std::string>& own, Use use);

/// The flags of `extras`.
std::vector<std::string> flags_of(const std::vector<Extra>& extras);

}  // namespace colonnade::config
