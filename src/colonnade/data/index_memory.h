// Memory check of sample indices before they are built.
#pragma once

#include <string>
#include <string_view>

namespace colonnade::data {

/// Throws ConfigError if indices of `bytes` exceed this machine's memory; does nothing if its size is
/// unknown. The message names the data set and the samples `requested`, such as "900 samples of 3 epochs".
void require_index_memory(const std::string& dataset, std::string_view requested, double bytes);

}  // namespace colonnade::data
