// The executable: holds back SIGINT, SIGTERM and SIGHUP and becomes libexec/colonnade, the program of
// main.cpp. That one loads LibTorch for a quarter of a second before main; a signal that comes meanwhile
// waits for its handlers. Linked statically and without the libraries of the project: the less is done before
// the first line here, the better.
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
  const char* const programs[] = {"libexec/colonnade",
                                  "../libexec/colonnade"};  // in a build folder; installed
  for (const char* program : programs) {
    strcpy(name, program);
    execv(path, argv);
  }
  fprintf(
      stderr,
      "error: colonnade: its program must lie in libexec/ of the build folder or beside bin/; got none at %s; "
      "link to `colonnade` instead of copying it, or install it\n",
      path);
  return 1;  // kExitFailed
}
