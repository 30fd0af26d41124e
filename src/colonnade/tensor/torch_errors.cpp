// See torch_errors.h.
#include "colonnade/tensor/torch_errors.h"

#include <c10/util/Exception.h>

#include <string>
#include <string_view>

#include "colonnade/base/error.h"

namespace colonnade::tensor {
namespace {

/// Device allocators throw their own type; the CPU allocator has only a message.
bool is_out_of_memory(const c10::Error& error, std::string_view text) {
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         text.find("can't allocate memory") != text.npos;
}

}  // namespace

int translate_torch_errors(const std::function<int()>& body) {
  try {
    return body();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (is_out_of_memory(error, text))
      throw Error(fmt::format(
          "memory must be sufficient; got {}; see `colonnade plan` for the memory of a run", text));
    throw Error(fmt::format(
        "calls of LibTorch must succeed; got {}; this is a defect of Colonnade, please report it with the "
        "settings (TORCH_SHOW_CPP_STACKTRACES=1 shows the location)",
        text));
  }
}

}  // namespace colonnade::tensor
