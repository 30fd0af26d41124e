// A build without CUDA has no NCCL.
#include "colonnade/base/error.h"
#include "colonnade/comm/c10d_backends.h"

namespace colonnade::comm {

std::shared_ptr<Backend> make_nccl(const GroupSeat&) {
  throw ConfigError(
      "--device: NCCL must be compiled in; got a build for the CPU only; use --device cpu, or build with the "
      "preset "
      "cuda");
}

}  // namespace colonnade::comm
