// Hugging Face folders: the files that hold their tensors, and what lies in place of such a folder.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace colonnade::checkpoint {

/// The names in a folder, sorted; none where it cannot be read.
std::vector<std::string> names_in(const std::filesystem::path& folder);

/// The first four names, separated by commas, for messages.
std::string first_names(const std::vector<std::string>& names);

/// True for a folder with config.json and model.safetensors or its index but no manifest of ours, as far as
/// it may be read.
bool is_hugging_face_folder(const std::filesystem::path& path);

/// Why a path with a model in it is not read: the weights are pickles, of an adapter or of another program,
/// lie in a sub-folder, or are missing beside config.json; or the path is a file. Names decide, only a single
/// file is opened. "" where nothing there belongs to a model.
std::string foreign_weights_fault(const std::filesystem::path& path);

/// The files of a folder's tensors.
struct Shards {
  /// By name of file: the tensors that the index says it holds; none without an index.
  std::map<std::string, std::vector<std::string>> files;
  std::vector<std::string> unlisted;  ///< further shards in the folder, which the index does not name
};

/// model.safetensors, or what model.safetensors.index.json names. Throws DataError where there is neither, or
/// the index is damaged, or names files that are not there.
Shards shards_of(const std::filesystem::path& folder);

/// The JSON in a file. Throws DataError for another kind of file, which it names, and for a key that stands
/// twice in an object, of which readers take one or the other.
nlohmann::json read_json(const std::filesystem::path& path);

}  // namespace colonnade::checkpoint
