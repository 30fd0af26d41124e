// Named ranges in the traces of --profile and in NVTX.
#pragma once

#include <ATen/record_function.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace colonnade::comm {

/// A range from construction to destruction on the calling thread, recorded by LibTorch's profilers as a user
/// annotation. `name()` returns a std::string and is called only while a profiler runs; otherwise the cost is
/// one read of thread-local state.
class TraceRange {
 public:
  template <typename Name>
  explicit TraceRange(const Name& name) {
    auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
    if (!callbacks) return;
    name_ = name();
    record_.emplace(std::move(*callbacks));
    record_->before(std::string_view(name_));
  }
  TraceRange(const TraceRange&) = delete;
  TraceRange& operator=(const TraceRange&) = delete;

 private:
  std::string name_;  ///< outlives record_, which points to it
  std::optional<at::RecordFunction> record_;
};

}  // namespace colonnade::comm
