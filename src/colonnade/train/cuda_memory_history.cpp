// Memory history of the CUDA caching allocator (memory_snapshots.h).
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/csrc/cuda/memory_snapshot.h>

#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/train/memory_snapshots.h"

namespace colonnade::train {

void start_memory_history(const std::filesystem::path& out_of_memory) {
  torch::cuda::_record_memory_history(/*enabled=*/true, /*record_context=*/true, kMemoryHistoryEntries,
                                      /*trace_alloc_record_context=*/true);
  c10::cuda::CUDACachingAllocator::attachOutOfMemoryObserver(
      [out_of_memory](std::int64_t /*device*/, std::size_t /*allocated*/, std::size_t /*total*/,
                      std::size_t /*free*/) {
        write_memory_snapshot(out_of_memory);
        log::info("out of memory: snapshot written to {}", out_of_memory.string());
      });
}

void write_memory_snapshot(const std::filesystem::path& file) {
  write_file_atomically(file, torch::cuda::_memory_snapshot_pickled());
}

}  // namespace colonnade::train
