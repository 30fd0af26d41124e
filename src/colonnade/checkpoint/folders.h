// The `checkpoints` folder of a run: names, leftovers, retention. No tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace colonnade::checkpoint {

/// `typed` without a trailing slash, so that filename() is the folder's name.
std::filesystem::path strip_trailing_slash(const std::filesystem::path& typed);

/// Error of reading `folder`, or its `checkpoints` where it has one; no error where it is readable or does
/// not exist.
std::error_code access_error(const std::filesystem::path& folder);

/// "step_00000100".
std::string step_folder_name(std::int64_t step);
/// Inverse of step_folder_name; nothing for another name.
std::optional<std::int64_t> step_of_name(const std::string& name);

/// Megatron's name of a step folder: "iter_0000100".
std::string iteration_folder_name(std::int64_t iteration);
/// Inverse of iteration_folder_name; nothing for another name.
std::optional<std::int64_t> iteration_of_name(const std::string& name);

/// Step folders in a `checkpoints` folder, intact or not, by step; empty when there is no such folder.
std::map<std::int64_t, std::filesystem::path> step_folders(const std::filesystem::path& checkpoints);
/// Steps of step_folders, ascending.
std::vector<std::int64_t> saved_steps(const std::filesystem::path& checkpoints);
/// Staging and removal folders left by interrupted saves.
std::vector<std::filesystem::path> leftovers(const std::filesystem::path& checkpoints);

/// The step that the file `latest` names; nothing when it is missing or names no step.
std::optional<std::int64_t> latest_step(const std::filesystem::path& checkpoints);
/// Points `latest` to `step`, in one atomic rename. Throws Error.
void set_latest(const std::filesystem::path& checkpoints, std::int64_t step);

/// Creates an empty staging folder, and removes leftovers of other saves beside it first. Throws Error.
void make_staging(const std::filesystem::path& staging);

/// Removes a step folder so that no partial one remains under its name. Throws Error.
void remove_step(const std::filesystem::path& step_folder);

/// Removes the step folders below `newest` whose step is not a multiple of `interval`; failures are warnings.
/// 0 removes none.
void retain(const std::filesystem::path& checkpoints, std::int64_t newest, std::int64_t interval);

}  // namespace colonnade::checkpoint
