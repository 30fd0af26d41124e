// Checks a checkpoint of Megatron for damage, as checkpoint::verify does a native one.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace colonnade::convert::megatron {

/// Opens the checkpoint of torch_dist at `path` and reads every tensor: files, frames of segments, chunks
/// that cover each tensor once, and the model that the args describe. Its format has no checksums of values.
/// Result as checkpoint::verify's; null where `path` holds no checkpoint of Megatron.
nlohmann::json verify(const std::filesystem::path& path);

}  // namespace colonnade::convert::megatron
