// Unguessable, unique names.
#pragma once

#include <fmt/format.h>

#include <random>
#include <string>

namespace colonnade {

/// 128 random bits of std::random_device as 32 hexadecimal digits.
inline std::string random_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace colonnade
