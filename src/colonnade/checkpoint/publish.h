// Atomic publication of a checkpoint: a complete staging folder gets its final name by one rename.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace colonnade::checkpoint {

inline constexpr std::string_view kStagingSuffix = ".staging";  ///< of a folder that is being written
inline constexpr std::string_view kRemovedSuffix = ".removed";  ///< of a folder that is being deleted

inline std::filesystem::path with_suffix(const std::filesystem::path& path, std::string_view suffix) {
  return path.string() + std::string(suffix);
}

/// Moves a complete staging folder to its final name. After a crash at any point the folder there is absent,
/// the previous one, or complete. Throws Error.
void publish(const std::filesystem::path& staging, const std::filesystem::path& final_name);

}  // namespace colonnade::checkpoint
