// Whether tests run full families: set in the entries of ctest with the label `long`, `ctest -L long`.
#pragma once

#include <cstdlib>

namespace colonnade::test {

inline bool full_families() { return std::getenv("COLONNADE_LONG") != nullptr; }

}  // namespace colonnade::test
