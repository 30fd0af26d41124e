// Whether the indices of samples fit the memory that they are made in.
#pragma once

#include <string>
#include <string_view>

namespace colonnade::data {

/// Throws ConfigError, naming `whose` samples they are and what was asked (`asked`: "900 samples of 3
/// epochs"), where indices of `bytes` are larger than this machine's memory; nothing where the system does
/// not say what that is.
void require_index_memory(const std::string& whose, std::string_view asked, double bytes);

}  // namespace colonnade::data
