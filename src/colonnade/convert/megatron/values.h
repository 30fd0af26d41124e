// Pickle values as JSON. Private to convert/megatron.
#pragma once

#include <nlohmann/json.hpp>

#include "colonnade/pickle/value.h"

namespace colonnade::convert::megatron {

/// Scalars, texts, lists, tuples and dicts with text or integer keys; a class is its name, an object with a
/// dict as its state that dict, another object {"class": name, "arguments": [...]}. What is nested deeper
/// than 8 levels is null, so that values that contain themselves end.
nlohmann::json to_json(const pickle::Value* value, int depth = 0);

}  // namespace colonnade::convert::megatron
