// The folder of checkpoints: names, publishing, leftovers, retention. No tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace colonnade::checkpoint {

/// `typed` without a slash at its end, so that its last part is the folder's name.
std::filesystem::path as_folder(const std::filesystem::path& typed);

/// Why this process may not look into `folder`, or into its `checkpoints` where it has one. No error where it
/// may, and where there is no such folder.
std::error_code closed(const std::filesystem::path& folder);

/// "step_00000100".
std::string step_folder_name(std::int64_t step);
/// The inverse; nothing for another name.
std::optional<std::int64_t> step_of_name(const std::string& name);

/// The step folders of a `checkpoints` folder, whole or not; empty when there is no such folder.
std::map<std::int64_t, std::filesystem::path> step_folders(const std::filesystem::path& checkpoints);
/// Their steps, ascending.
std::vector<std::int64_t> saved_steps(const std::filesystem::path& checkpoints);
/// What interrupted saves and removals have left there.
std::vector<std::filesystem::path> leftovers(const std::filesystem::path& checkpoints);

/// The step that the file `latest` names; nothing when it is missing or names no step.
std::optional<std::int64_t> latest_step(const std::filesystem::path& checkpoints);
/// Makes `latest` name `step`, in one rename. Throws Error.
void set_latest(const std::filesystem::path& checkpoints, std::int64_t step);

/// The staging folder of a step, fresh and empty; leftovers are removed first. Throws Error.
std::filesystem::path make_staging(const std::filesystem::path& checkpoints, std::int64_t step);

/// Makes a fully written staging folder visible under its final name. After a crash at any line the
/// folder is either absent there, the one that was there before, or complete. Throws Error.
void publish(const std::filesystem::path& staging, const std::filesystem::path& final_name);

/// Removes a step folder so that no part of it stays under its name. Throws Error.
void remove_step(const std::filesystem::path& step_folder);

/// Removes the step folders below `newest` whose step is no multiple of `interval`; failures are
/// warnings. 0 removes none.
void retain(const std::filesystem::path& checkpoints, std::int64_t newest, std::int64_t interval);

}  // namespace colonnade::checkpoint
