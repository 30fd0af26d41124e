// See program.h.
#include "colonnade/base/program.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <sstream>
#include <system_error>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/base/progress.h"
#include "colonnade/base/reason.h"

namespace colonnade {
namespace {

/// Prints every line of the message on standard error and shows the message to the launcher.
int report(const std::exception& error, int code) {
  const std::string text = reason_of(error);
  progress().set_note(text);
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);) log::error("{}", line);
  return code;
}

/// Reports a failed write to standard output, e.g. on a full disk; `reason`: errno, or 0.
int report_output_error(int reason) {
  return report(
      Error(fmt::format("standard output must be writable; got {}; free disk space or redirect the output",
                        reason != 0 ? std::strerror(reason) : "an error")),
      kExitFailed);
}

int exit_code_of(const std::function<int()>& body) {
  try {
    return body();
  } catch (const ConfigError& error) {
    return report(error, kExitSettings);
  } catch (const DataError& error) {
    return report(error, kExitData);
  } catch (const CommError& error) {
    return report(error, kExitRankLost);
  } catch (const StopRequested& error) {
    log::info("{}", error.what());
    return kExitStopped;
  } catch (const std::bad_alloc&) {
    return report(
        Error("out of memory on this machine; see `colonnade plan` for the memory that a run needs"),
        kExitFailed);
  } catch (const std::system_error& error) {
    return std::ferror(stdout) != 0 ? report_output_error(error.code().value()) : report(error, kExitFailed);
  } catch (const std::exception& error) {
    return report(error, kExitFailed);
  }
}

}  // namespace

int run_as_program(const std::function<int()>& body) {
  std::signal(SIGXFSZ, SIG_IGN);  // exceeding the file size limit is a failed write, not the end of the run
  // A rank's output goes to a pipe: a printed line must survive if the rank is killed afterwards.
  if (std::getenv("RANK") != nullptr) std::setvbuf(stdout, nullptr, _IOLBF, 0);
  int code = exit_code_of(body);
  errno = 0;
  if (code == kExitDone && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0))
    code = report_output_error(errno);
  std::fflush(nullptr);
  if (code != kExitDone) ::_exit(code);
  return code;
}

}  // namespace colonnade
