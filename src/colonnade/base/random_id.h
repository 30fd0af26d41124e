// Names that nobody can guess and that no two processes share.
#pragma once

#include <fmt/format.h>

#include <random>
#include <string>

namespace colonnade {

/// 128 bits of the system's random numbers as 32 hexadecimal digits.
inline std::string random_id() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace colonnade
