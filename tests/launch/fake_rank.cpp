// A rank without tensors for the launcher's tests: runs steps, writes its progress page, and fails in a
// requested way. One rank fails; the others then wait for it.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "colonnade/base/progress.h"

namespace {

// NOLINTNEXTLINE(*-non-const-global-variables): a handler can access nothing else
volatile sig_atomic_t stop_signal = 0;
void on_stop(int signal) { stop_signal = signal; }

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// "--name value" pairs.
class Flags {
 public:
  Flags(int argc, char** argv) {
    for (int i = 1; i + 1 < argc; i += 2) values_[argv[i]] = argv[i + 1];
  }
  [[nodiscard]] std::string text(const std::string& name, const std::string& otherwise) const {
    const auto found = values_.find(name);
    return found == values_.end() ? otherwise : found->second;
  }
  [[nodiscard]] int number(const std::string& name, int otherwise) const {
    return std::stoi(text(name, std::to_string(otherwise)));
  }

 private:
  std::map<std::string, std::string> values_;
};

[[noreturn]] void sleep_forever() {
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

/// Fails by exit:CODE, agreed:CODE (exit code agreed by all ranks), segv, kill, stop or hang; "none" returns.
void fail(const std::string& fault) {
  if (fault == "none") return;
  std::printf("about to fail: %s\n", fault.c_str());
  if (fault == "segv") {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::raise(SIGSEGV);
  }
  if (fault == "kill") ::raise(SIGKILL);
  if (fault == "stop") ::raise(SIGSTOP);
  if (fault == "hang") sleep_forever();
  if (fault.starts_with("agreed:")) {
    std::fprintf(stderr, "error: the disk is full\n");
    colonnade::progress().set_agreed_exit_code(std::stoi(fault.substr(fault.find(':') + 1)));
  }
  std::exit(std::stoi(fault.substr(fault.find(':') + 1)));
}

/// Behavior of the other ranks when the faulty one does not arrive: wait, or exit as after a time-out.
void wait_for_lost_rank(colonnade::Progress& page, int group, const std::string& peers) {
  const auto ticket = page.begin(group, "grad bucket 3");
  page.wait(ticket, "grad bucket 3");
  if (peers == "wait") sleep_forever();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  std::exit(4);
}

void run_faulty_step(colonnade::Progress& page, int group, const Flags& flags, const std::string& fault,
                     bool mine) {
  if (mine || fault.starts_with("agreed:")) fail(fault);
  wait_for_lost_rank(page, group, flags.text("--peers", "wait"));
}

/// Handler of SIGINT and SIGTERM: save, ignore or die.
auto handler(const std::string& name) {
  return name == "ignore" ? SIG_IGN : name == "die" ? SIG_DFL : on_stop;
}

void print_environment() {
  for (const char* name :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
        "OMP_NUM_THREADS", "COLONNADE_RESTART_COUNT", "COLONNADE_JOB_TOKEN"})
    std::printf("%s=%s ", name, variable(name).c_str());
  std::printf("pid=%d\n", ::getpid());
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Flags flags(argc, argv);
  for (const int signal : {SIGINT, SIGTERM}) ::signal(signal, handler(flags.text("--on-term", "save")));
  const int rank = std::stoi(variable("RANK"));
  const int world = std::stoi(variable("WORLD_SIZE"));
  print_environment();

  colonnade::Progress& page = colonnade::progress();
  page.set_rank(rank, world);
  std::vector<int> members(static_cast<std::size_t>(world));
  std::iota(members.begin(), members.end(), 0);
  const int group = page.add_group("dp", members);
  const bool spared = flags.text("--once", "no") == "yes" && variable("COLONNADE_RESTART_COUNT") != "0";
  const std::string fault = spared ? "none" : flags.text("--fault", "none");
  const bool faulty = rank == flags.number("--faulty-rank", 1);
  const int at_step = fault == "none" ? -1 : flags.number("--at-step", 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(flags.number("--start-ms", 0)));
  if (at_step == 0) run_faulty_step(page, group, flags, fault, faulty);
  for (int step = 1; step <= flags.number("--steps", 3); ++step) {
    page.set_step(step);
    page.set_phase("data");
    if (step == at_step) run_faulty_step(page, group, flags, fault, faulty);
    page.set_phase("forward-backward");
    const auto ticket = page.begin(group, "grad bucket 1");
    page.wait(ticket, "grad bucket 1");
    std::this_thread::sleep_for(std::chrono::milliseconds(flags.number("--step-ms", 20)));
    page.end(ticket);
    std::printf("rank %d: step %d done\n", rank, step);
    if (stop_signal != 0) {
      std::printf("rank %d: saved after signal %d\n", rank, static_cast<int>(stop_signal));
      return 5;
    }
  }
  return 0;
}
