// A build without CUDA has no NCCL.
#include "colonnade/base/error.h"
#include "colonnade/comm/c10d_backends.h"

namespace colonnade::comm {
namespace {

[[noreturn]] void throw_no_nccl() {
  throw ConfigError(
      "--device: NCCL must be compiled in; got a CPU-only build; use --device cpu, or build with "
      "the preset cuda");
}

}  // namespace

std::shared_ptr<DeviceOpWatchdog> make_nccl_watchdog(std::chrono::milliseconds) { throw_no_nccl(); }
std::shared_ptr<Backend> make_nccl(const GroupSpec&) { throw_no_nccl(); }

}  // namespace colonnade::comm
