// See run_folder.h.
#include "colonnade/train/run_folder.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"

namespace colonnade::train {

namespace fs = std::filesystem;

std::string local_time(const char* format) { return local_time(format, std::time(nullptr)); }

std::string local_time(const char* format, std::time_t when) {
  std::tm local{};
  ::localtime_r(&when, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), format, &local);
  return text.data();
}

RunFolder choose_run_folder(const std::string& save) {
  if (!save.empty()) return {save};
  const fs::path first = fs::path("runs") / local_time("%Y-%m-%d_%H-%M-%S");
  fs::path free = first;
  for (int n = 2; fs::exists(free); ++n) free = fmt::format("{}-{}", first.string(), n);
  return {free};
}

void make_run_folder(const RunFolder& folder) {
  std::string reason;
  try {
    create_folders(folder.checkpoints());
    if (::access(folder.root.c_str(), W_OK) != 0) reason = std::strerror(errno);
  } catch (const fs::filesystem_error& e) {
    reason = e.code().message();
  } catch (const Error& e) {
    reason = e.what();
  }
  if (!reason.empty())
    throw ConfigError(
        fmt::format("--save: the run folder must be writable; got {} ({}); choose another folder",
                    folder.root.string(), reason));
}

}  // namespace colonnade::train
