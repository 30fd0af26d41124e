// A build without CUDA has no NCCL.
#include "colonnade/base/error.h"
#include "colonnade/comm/c10d_backends.h"

namespace colonnade::comm {
namespace {

[[noreturn]] void refuse() {
  throw ConfigError(
      "--device: NCCL must be compiled in; got a build for the CPU only; use --device cpu, or build with "
      "the preset cuda");
}

}  // namespace

std::shared_ptr<Flights> nccl_flights(std::chrono::milliseconds) { refuse(); }
std::shared_ptr<Backend> make_nccl(const GroupSeat&) { refuse(); }

}  // namespace colonnade::comm
