// See publish.h.
#include "colonnade/checkpoint/publish.h"

#include <fcntl.h>

#include <cstdio>

#include "colonnade/base/files.h"

namespace colonnade::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Swaps two folders atomically; false when the file system does not support it.
bool exchange(const fs::path& a, const fs::path& b) {
  return ::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0;
}

}  // namespace

void publish(const fs::path& staging, const fs::path& final_name) {
  sync_path(staging);
  const fs::path parent = final_name.parent_path();
  if (!fs::exists(final_name)) {
    fs::rename(staging, final_name);  // atomic: both names are on one file system
    sync_path(parent);
    return;
  }
  const fs::path old = with_suffix(final_name, kRemovedSuffix);
  if (exchange(staging, final_name)) {
    sync_path(parent);
    fs::rename(staging, old);
  } else {
    fs::rename(final_name, old);
    fs::rename(staging, final_name);
    sync_path(parent);
  }
  fs::remove_all(old);
}

}  // namespace colonnade::checkpoint
