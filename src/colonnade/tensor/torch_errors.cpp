// See torch_errors.h.
#include "colonnade/tensor/torch_errors.h"

#include <c10/util/Exception.h>

#include <string>
#include <string_view>

#include "colonnade/base/error.h"

namespace colonnade::tensor {
namespace {

/// The type is that of devices; the CPU's allocator has words only.
bool lacks_memory(const c10::Error& error, std::string_view text) {
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         text.find("can't allocate memory") != text.npos;
}

}  // namespace

int retell_torch_errors(const std::function<int()>& body) {
  try {
    return body();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (lacks_memory(error, text))
      throw Error(fmt::format(
          "memory: there is not enough; got {}; see `colonnade plan` for what a run needs", text));
    throw Error(fmt::format(
        "LibTorch: it must get what it can work with; got {}; this is a defect of Colonnade, please "
        "report it with the settings (TORCH_SHOW_CPP_STACKTRACES=1 tells where)",
        text));
  }
}

}  // namespace colonnade::tensor
