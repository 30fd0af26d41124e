// How much memory this machine gives to its processes.
#pragma once

#include <cstdint>
#include <filesystem>

namespace colonnade {

/// Bytes that this process and its neighbours may use: the machine's memory or, where it is less, what the
/// control groups of this process allow (versions 1 and 2); its swap comes on top, as far as the groups
/// allow that. 0 when the system does not say. `root`: the folder that holds proc and sys.
std::int64_t machine_memory(const std::filesystem::path& root = "/");

}  // namespace colonnade
