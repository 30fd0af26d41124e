// How config.json is read: values as text, and what is said of those that are no model of ours. Private to
// models/hf.
#pragma once

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "colonnade/base/error.h"

namespace colonnade::models::hf {

using Settings = std::map<std::string, std::string>;

/// A value of the config as text; `fallback` where it is missing or null.
inline std::string text(const nlohmann::json& c, const char* key, const std::string& fallback) {
  if (!c.contains(key) || c[key].is_null()) return fallback;
  return c[key].is_string() ? c[key].get<std::string>() : c[key].dump();
}

[[noreturn]] inline void refuse(const std::string& source, const std::string& what, const std::string& got) {
  throw ConfigError(fmt::format("{}: {}; got {}; convert the model or choose another", source, what, got));
}

}  // namespace colonnade::models::hf
