// How a program on this library ends: what it throws becomes `error:` lines and an exit code.
#pragma once

#include <functional>

namespace colonnade {

/// Runs `body` as the whole of a program and ends as `colonnade` does:
///
///   int main(int argc, char** argv) {
///     return colonnade::run_as_program([&] { ...; return 0; });
///   }
///
/// Returns 0 when `body` returns 0. With another code, or with an exception, the process ends here: what is
/// buffered is written, destructors of globals do not run, for threads that wait for a lost rank would wait
/// on. An exception is told on standard error, a line for each of its own, and its first line to the
/// launcher; the code is that of its type (base/error.h), 1 for those of others. StopRequested is no error:
/// it is told as it is.
///
/// A rank's standard output (RANK is set) is written line by line, and a file that must not grow is a write
/// that fails, not a signal. Call it once, from main.
int run_as_program(const std::function<int()>& body);

}  // namespace colonnade
