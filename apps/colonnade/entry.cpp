// The executable: blocks SIGINT, SIGTERM and SIGHUP and replaces itself by libexec/colonnade, the program of
// main.cpp. That program loads LibTorch for a quarter of a second before main; a signal in this time waits
// for its handlers. Linked statically and without the project's libraries, so that little runs before the
// first line of main here.
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int, char** argv) {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGINT);
  sigaddset(&stop, SIGTERM);
  sigaddset(&stop, SIGHUP);
  sigprocmask(SIG_BLOCK, &stop, nullptr);
  char path[2 * PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
  path[length > 0 ? length : 0] = 0;
  char* const slash = strrchr(path, '/');
  char* const name = slash != nullptr ? slash + 1 : path;
  const char* const programs[] = {"libexec/colonnade", "../libexec/colonnade"};  // build folder; installation
  for (const char* program : programs) {
    strcpy(name, program);
    execv(path, argv);
  }
  fprintf(
      stderr,
      "error: colonnade: its program must be in libexec/ of the build folder or next to bin/; got none at %s; link to "
      "`colonnade` instead of copying it, or install it\n",
      path);
  return 1;  // kExitFailed
}
