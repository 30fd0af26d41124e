// Entry point of programs on this library: exceptions become `error:` lines and exit codes.
#pragma once

#include <functional>

namespace colonnade {

/// Runs `body` as the main function of a program and exits as `colonnade` does:
///
///   int main(int argc, char** argv) {
///     return colonnade::run_as_program([&] { ...; return 0; });
///   }
///
/// Returns 0 if `body` returns 0. On any other code or an exception the process exits here: buffers are
/// flushed, but destructors of globals do not run, because threads that wait for a lost rank would block
/// them. Every line of an exception's message is printed on standard error; the launcher receives the message
/// too. The exit code is that of the exception's type (base/error.h), 1 for exceptions of other libraries.
/// StopRequested is not an error; its message is logged as info.
///
/// A rank's standard output (RANK is set) is line-buffered. SIGXFSZ is ignored: exceeding the file size limit
/// is a failed write. Call it once, from main.
int run_as_program(const std::function<int()>& body);

}  // namespace colonnade
