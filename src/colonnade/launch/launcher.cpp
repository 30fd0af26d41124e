// See launcher.h. One loop that sleeps in poll, on a descriptor of signals and the output of the ranks: no
// handlers.
#include "colonnade/launch/launcher.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/base/stop_signal.h"
#include "colonnade/launch/logs.h"
#include "colonnade/launch/verdict.h"
#include "colonnade/launch/way_on.h"
#include "colonnade/launch/world.h"

namespace colonnade::launch {
namespace {

constexpr int kLogLines = 10;
constexpr double kSameFaultS = 1;    // ranks that refuse the same settings end that close together
constexpr double kSameRequestS = 1;  // `timeout` and schedulers send the same signal twice
constexpr double kLateS = 5;         // others have waited for a rank that long: it is named
constexpr double kNamedAgainS = 60;  // a rank that is late in every step is not named in each

/// Signals of this process as values. SIGPIPE is held back, so that a closed terminal does no harm.
class Signals {
 public:
  Signals() {
    ::sigemptyset(&set_);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::sigaddset(&set_, signal);
    if (is_ignored(SIGHUP)) ::sigdelset(&set_, SIGHUP);  // by nohup
    ::sigprocmask(SIG_BLOCK, &set_, &before_);
    fd_ = ::signalfd(-1, &set_, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd_ < 0) throw Error(fmt::format("launch: no descriptor of signals; {}", std::strerror(errno)));
  }
  ~Signals() {
    while (next()) {
    }
    ::close(fd_);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// The next signal that has arrived, if any.
  [[nodiscard]] std::optional<int> next() const {
    signalfd_siginfo signal{};
    const bool got = ::read(fd_, &signal, sizeof signal) == sizeof signal;
    return got ? std::optional(static_cast<int>(signal.ssi_signo)) : std::nullopt;
  }

  /// Whether one of those that end a program has arrived; takes all that have.
  [[nodiscard]] bool ask_to_stop() const {
    bool asks = false;
    while (const auto signal = next())
      asks = asks || *signal == SIGINT || *signal == SIGTERM || *signal == SIGHUP;
    return asks;
  }

  /// Sleeps until there is a signal or something in one of `pipes`, at most `seconds`.
  void wait(double seconds, const std::vector<int>& pipes) const {
    std::vector<pollfd> waits{{fd_, POLLIN, 0}};
    for (const int pipe : pipes) waits.push_back({pipe, POLLIN, 0});
    ::poll(waits.data(), waits.size(), static_cast<int>(std::ceil(seconds * 1e3)));
  }

 private:
  sigset_t set_{};
  sigset_t before_{};
  int fd_ = -1;
};

double seconds_since(std::int64_t then_ns) { return static_cast<double>(monotonic_ns() - then_ns) * 1e-9; }

/// "step 12, forward-backward; 4 ranks; rank 2 quiet for 12 s (data)".
std::string status_text(const std::vector<RankView>& ranks) {
  const RankView& first = ranks.front();
  const auto quiet = std::ranges::max_element(ranks, {}, &RankView::silent_s);
  std::string text = first.page.step >= 0 ? fmt::format("step {}", first.page.step) : std::string("starting");
  if (!first.page.phase.empty()) text += ", " + first.page.phase;
  text += fmt::format("; {} ranks", ranks.size());
  if (quiet->silent_s >= 5)
    text += fmt::format("; rank {} quiet for {:.0f} s ({})", quiet->rank, quiet->silent_s, quiet->page.phase);
  return text;
}

/// Watches one start of the ranks to its end.
class Watch {
 public:
  Watch(const Options& options, World& world, const Signals& signals, Console& console)
      : options_(options), world_(world), signals_(signals), console_(console) {
    patience_.silent_s = options.hang_timeout_s;
  }

  int to_the_end() {
    start_ranks();
    for (;;) {
      tick();
      const std::vector<RankView> ranks = with_early_stops(world_.views(), asked_);
      note_first_desertion(ranks);
      if (killed_ && world_.all_ended()) return kExitRankLost;
      const double waited_s = deserted_ns_ == 0 ? 0 : seconds_since(deserted_ns_);
      const auto verdict = killed_ ? std::nullopt : judge(ranks, patience_, waited_s);
      if (verdict) return carry_out(*verdict);
      if (world_.all_ended()) return ending_of_all(ranks);
      if (!killed_ && std::ranges::any_of(ranks, stopped_early)) return end_early(ranks);
      if (!killed_) name_late(ranks);
      console_.status(status_text(ranks));
    }
  }

  [[nodiscard]] bool was_asked_to_stop() const { return asked_; }
  [[nodiscard]] AnnouncedRun announced() const { return world_.announced(); }

 private:
  /// One after the other. None follows a request to stop or a rank that has failed.
  void start_ranks() {
    const auto failed = [](const RankView& view) {
      return view.ending && (view.ending->signal != 0 || view.ending->code != kExitDone);
    };
    do {
      while (const auto signal = signals_.next()) on_signal(*signal);
      world_.look();
      world_.copy_output();
    } while (!asked_ && std::ranges::none_of(world_.views(), failed) && world_.start_next());
    if (world_.started() < options_.nproc_per_node)
      console_.line(fmt::format("{} of {} ranks were started", world_.started(), options_.nproc_per_node));
  }

  /// Sleeps until something happens or the interval is over, then looks.
  void tick() {
    signals_.wait(options_.monitor_interval_s, world_.pipes());
    while (const auto signal = signals_.next()) on_signal(*signal);
    world_.look();
    world_.copy_output();  // after the look: of a rank that has ended it is all
  }

  void on_signal(int signal) {
    if (signal != SIGINT && signal != SIGTERM && signal != SIGHUP) return;
    const bool again = std::exchange(asked_, true);
    if (again && seconds_since(asked_ns_) < kSameRequestS) return;
    if (again || ending_) {
      console_.line(fmt::format("SIG{}: killing the ranks", ::sigabbrev_np(signal)));
      killed_ = true;
      world_.send(SIGKILL);
      return;
    }
    asked_ns_ = monotonic_ns();
    console_.line(fmt::format("SIG{}: the ranks are asked to save and stop; a second signal kills them",
                              ::sigabbrev_np(signal)));
    world_.send(signal == SIGHUP ? SIGTERM : signal);
  }

  void note_first_desertion(const std::vector<RankView>& ranks) {
    const bool deserted = std::ranges::any_of(ranks, [](const RankView& view) {
      return view.ending && view.ending->signal == 0 && view.ending->code == kExitRankLost;
    });
    if (deserted && deserted_ns_ == 0) deserted_ns_ = monotonic_ns();
  }

  int carry_out(Verdict verdict) {
    const bool refused = verdict.exit_code != kExitRankLost;
    if (refused) verdict = with_the_others(std::move(verdict));
    for (const std::string& line : verdict.lines) console_.line(line);
    const bool shown = refused && world_.first_rank() == 0 && verdict.culprits.front() == 0;
    if (!verdict.culprits.empty() && !shown) show_log(verdict.culprits.front());
    end_the_others();
    return verdict.exit_code;
  }

  /// The other ranks mostly refuse the same settings or data a moment later: one report for all.
  Verdict with_the_others(Verdict verdict) {
    const std::int64_t begin = monotonic_ns();
    while (!world_.all_ended() && !killed_ && seconds_since(begin) < kSameFaultS) tick();
    return judge(world_.views(), patience_, 0).value_or(std::move(verdict));
  }

  /// A rank has stopped before the first step: no other can go on, and none has something to save.
  int end_early(const std::vector<RankView>& ranks) {
    const auto first = std::ranges::find_if(ranks, stopped_early);
    if (!asked_)
      console_.line(
          fmt::format("rank {} was asked to stop before the first step; the others are ended", first->rank));
    end_the_others();
    return kExitStopped;
  }

  /// One line for a rank that keeps others waiting; it is ended by the hang time-out only.
  void name_late(const std::vector<RankView>& ranks) {
    const auto late = find_late(ranks, kLateS, monotonic_ns());
    if (!late) return;
    const auto [named, first] = named_ns_.try_emplace(late->rank, monotonic_ns());
    if (!first && seconds_since(named->second) < kNamedAgainS) return;
    named->second = monotonic_ns();
    console_.line(late->line);
  }

  void show_log(int rank) {
    const RankOutput& output = world_.output(rank);
    const auto lines = output.last_lines(kLogLines);
    console_.line(fmt::format("{} of {}{}", lines.empty() ? "nothing in the log" : "last lines",
                              output.log().string(), lines.empty() ? "" : ":"));
    for (const std::string& line : lines) console_.line("  | " + line);
  }

  void end_the_others() {
    world_.kill_stopped();
    world_.send(SIGTERM);
    ending_ = true;
    const std::int64_t begin = monotonic_ns();
    while (!world_.all_ended() && !killed_ && seconds_since(begin) < options_.grace_period_s) tick();
    std::vector<int> late;
    for (const RankView& view : world_.views()) {
      if (!view.ending) late.push_back(view.rank);
    }
    if (late.empty()) return;
    console_.line(fmt::format("killed because they did not end within {} s of SIGTERM: ranks {}",
                              options_.grace_period_s, fmt::join(late, ", ")));
    world_.send(SIGKILL);
  }

  static int ending_of_all(const std::vector<RankView>& ranks) {
    const bool stopped =
        std::ranges::any_of(ranks, [](const RankView& view) { return view.ending->code == kExitStopped; });
    return stopped ? kExitStopped : kExitDone;
  }

  const Options& options_;
  World& world_;
  const Signals& signals_;
  Console& console_;
  Patience patience_;
  std::map<int, std::int64_t> named_ns_;  // when a late rank was named
  std::int64_t deserted_ns_ = 0;          // when the first rank ended because it had lost another
  std::int64_t asked_ns_ = 0;
  bool asked_ = false;   // by a signal to this process
  bool ending_ = false;  // the ranks are being ended: a signal kills them
  bool killed_ = false;
};

Options complete(Options options) {
  check(options);
  if (options.log_dir.empty()) options.log_dir = log_dir_of_run(options.command);
  if (options.log_dir.empty()) {
    options.log_dir = log_dir_of_now();
    options.new_log_dir = true;
  }
  if (options.hang_timeout_s == 0) options.hang_timeout_s = default_hang_timeout_s(options.command);
  if (options.master_addr.empty()) options.master_addr = "127.0.0.1";
  return options;
}

/// The ranks are gone: how the run goes on is for the launcher to say.
void tell_way_on(const Options& options, const AnnouncedRun& run, Console& console) {
  const CommandLine line = command_line_of_launcher(words_of_process(::getpid()), options.command);
  console.output(way_on_after_loss(line, run));
}

}  // namespace

int run(const Options& given) {
  Options options = complete(given);
  const Signals signals;
  const LogFolder logs(options.log_dir, options.new_log_dir, options.node_rank,
                       {.stop = [&signals] { return signals.ask_to_stop(); }});
  options.log_dir = logs.path();
  Console console;
  for (int restart = 0;; ++restart) {
    const int port = options.master_port == 0 ? free_port() : options.master_port + restart;
    World world(options, console, port, restart);
    console.line(fmt::format("{} ranks, world of {}, master {}:{}, logs in {}", options.nproc_per_node,
                             options.nnodes * options.nproc_per_node, options.master_addr, port,
                             options.log_dir.string()));
    Watch watch(options, world, signals, console);
    const int code = watch.to_the_end();
    const bool lost = code == kExitRankLost && !watch.was_asked_to_stop();
    if (!lost || restart == options.max_restarts) {
      if (code == kExitRankLost) tell_way_on(options, watch.announced(), console);
      return code;
    }
    console.line(fmt::format("restart {} of {}", restart + 1, options.max_restarts));
  }
}

}  // namespace colonnade::launch
