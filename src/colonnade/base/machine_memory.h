// Memory available to the processes of this machine.
#pragma once

#include <cstdint>
#include <filesystem>

namespace colonnade {

/// Bytes of memory plus swap that this process and others of its cgroup may use: the machine's totals, capped
/// by the limits of its cgroups (v1 and v2). 0 if unknown. `root` is the folder that contains proc and sys.
std::int64_t machine_memory(const std::filesystem::path& root = "/");

}  // namespace colonnade
