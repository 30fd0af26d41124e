// Stubs of memory_snapshots.h in builds without CUDA; rule memory-history rejects the setting on the CPU.
#include "colonnade/base/error.h"
#include "colonnade/train/memory_snapshots.h"

namespace colonnade::train {

namespace {

[[noreturn]] void require_cuda() {
  throw ConfigError(
      "--record-memory-history requires a build with CUDA; got a CPU-only build; remove the flag, or configure "
      "with the preset `cuda`");
}

}  // namespace

void start_memory_history(const std::filesystem::path&) { require_cuda(); }
void write_memory_snapshot(const std::filesystem::path&) { require_cuda(); }

}  // namespace colonnade::train
