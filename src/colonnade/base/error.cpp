// See error.h.
#include "colonnade/base/error.h"

#include <cstring>

namespace colonnade {

void fail(const char* file, int line, const std::string& message) {
  const char* from_src = std::strstr(file, "src/colonnade/");
  throw Error(fmt::format("{} [{}:{}]", message, from_src != nullptr ? from_src + 4 : file, line));
}

}  // namespace colonnade
