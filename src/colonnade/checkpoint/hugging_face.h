// Hugging Face folders: their tensor files, and diagnosis of folders that cannot be read.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace colonnade::checkpoint {

/// The file names in a folder, sorted; none where it cannot be read.
std::vector<std::string> names_in(const std::filesystem::path& folder);

/// The first four names, separated by commas, for error messages.
std::string first_names(const std::vector<std::string>& names);

/// Whether the folder has config.json and model.safetensors or its index, but no manifest of Colonnade. False
/// where it cannot be read.
bool is_hugging_face_folder(const std::filesystem::path& path);

/// Why a model at `path` cannot be read: its weights are pickles, an adapter or of another program, are in a
/// subfolder, or are missing next to config.json; or the path is a file. Decided by file names; only a single
/// file is opened. "" where nothing there belongs to a model.
std::string unsupported_weights_fault(const std::filesystem::path& path);

/// The files of a folder's tensors.
struct Shards {
  /// Tensors per file according to the index; empty lists without an index.
  std::map<std::string, std::vector<std::string>> files;
  std::vector<std::string> unlisted;  ///< other shards in the folder that are not in the index
};

/// model.safetensors, or the files in model.safetensors.index.json. Throws DataError where there is neither,
/// or the index is damaged or names missing files.
Shards shards_of(const std::filesystem::path& folder);

/// The JSON in a file. Throws DataError for another kind of file, with that kind, and for a duplicate key in
/// an object, for which parsers disagree. Python's Infinity and NaN are read as null.
nlohmann::json read_json(const std::filesystem::path& path);

}  // namespace colonnade::checkpoint
