// See launcher.h. A single loop polls a signalfd and the ranks' output pipes; there are no signal handlers.
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
#include "colonnade/launch/diagnosis.h"
#include "colonnade/launch/local_ranks.h"
#include "colonnade/launch/logs.h"
#include "colonnade/launch/resume_hint.h"

namespace colonnade::launch {
namespace {

constexpr int kLogLines = 10;
constexpr double kSameErrorS = 1;      // ranks that reject the same settings exit within this time
constexpr double kSameRequestS = 1;    // `timeout` and schedulers send the same signal twice
constexpr double kStragglerS = 5;      // wait time of other ranks before a straggler is reported
constexpr double kRepeatReportS = 60;  // interval between reports of the same straggler

/// Signals of this process, read from a signalfd. SIGPIPE is blocked, so that a closed terminal does no harm.
class Signals {
 public:
  Signals() {
    ::sigemptyset(&set_);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::sigaddset(&set_, signal);
    if (is_ignored(SIGHUP)) ::sigdelset(&set_, SIGHUP);  // by nohup
    ::sigprocmask(SIG_BLOCK, &set_, &previous_mask_);
    fd_ = ::signalfd(-1, &set_, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd_ < 0) throw Error(fmt::format("launch: cannot create a signalfd; {}", std::strerror(errno)));
  }
  ~Signals() {
    while (next()) {
    }
    ::close(fd_);
    ::sigprocmask(SIG_SETMASK, &previous_mask_, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  /// The next pending signal, if any.
  [[nodiscard]] std::optional<int> next() const {
    signalfd_siginfo signal{};
    const bool got = ::read(fd_, &signal, sizeof signal) == sizeof signal;
    return got ? std::optional(static_cast<int>(signal.ssi_signo)) : std::nullopt;
  }

  /// Consumes all pending signals; true if one of them is a stop request.
  [[nodiscard]] bool take_stop_request() const {
    bool stop = false;
    while (const auto signal = next())
      stop = stop || *signal == SIGINT || *signal == SIGTERM || *signal == SIGHUP;
    return stop;
  }

  /// Sleeps until a signal or output in one of `pipes` arrives, at most `seconds`.
  void wait(double seconds, const std::vector<int>& pipes) const {
    std::vector<pollfd> waits{{fd_, POLLIN, 0}};
    for (const int pipe : pipes) waits.push_back({pipe, POLLIN, 0});
    ::poll(waits.data(), waits.size(), static_cast<int>(std::ceil(seconds * 1e3)));
  }

 private:
  sigset_t set_{};
  sigset_t previous_mask_{};
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

/// Monitors one start of the ranks until all have exited.
class Monitor {
 public:
  Monitor(const Options& options, LocalRanks& ranks, const Signals& signals, Console& console)
      : options_(options), ranks_(ranks), signals_(signals), console_(console) {
    timeouts_.silent_s = options.hang_timeout_s;
  }

  int run_to_completion() {
    start_ranks();
    for (;;) {
      tick();
      const std::vector<RankView> ranks = with_early_stops(ranks_.views(), stop_requested_);
      record_first_lost_peer(ranks);
      if (killed_ && ranks_.all_exited()) return kExitRankLost;
      const double waited_s = lost_peer_ns_ == 0 ? 0 : seconds_since(lost_peer_ns_);
      const auto diagnosis = killed_ ? std::nullopt : diagnose(ranks, timeouts_, waited_s);
      if (diagnosis) return report_and_stop(*diagnosis);
      if (ranks_.all_exited()) return final_exit_code(ranks);
      if (!killed_ && std::ranges::any_of(ranks, stopped_before_first_step)) return stop_early(ranks);
      if (!killed_) report_straggler(ranks);
      console_.status(status_text(ranks));
    }
  }

  [[nodiscard]] bool was_asked_to_stop() const { return stop_requested_; }
  [[nodiscard]] AnnouncedRun announced() const { return ranks_.announced(); }

 private:
  /// Starts the ranks one by one; stops starting after a stop request or the failure of a rank.
  void start_ranks() {
    const auto failed = [](const RankView& view) {
      return view.exit && (view.exit->signal != 0 || view.exit->code != kExitDone);
    };
    do {
      while (const auto signal = signals_.next()) on_signal(*signal);
      ranks_.poll();
      ranks_.copy_output();
    } while (!stop_requested_ && std::ranges::none_of(ranks_.views(), failed) && ranks_.start_next());
    if (ranks_.started() < options_.nproc_per_node)
      console_.line(fmt::format("{} of {} ranks were started", ranks_.started(), options_.nproc_per_node));
  }

  /// Sleeps until an event or the end of the interval, then updates the state of the ranks.
  void tick() {
    signals_.wait(options_.monitor_interval_s, ranks_.pipes());
    while (const auto signal = signals_.next()) on_signal(*signal);
    ranks_.poll();
    ranks_.copy_output();  // after poll(): the output of an exited rank is then complete
  }

  void on_signal(int signal) {
    if (signal != SIGINT && signal != SIGTERM && signal != SIGHUP) return;
    const bool repeated = std::exchange(stop_requested_, true);
    if (repeated && seconds_since(stop_requested_ns_) < kSameRequestS) return;
    if (repeated || stopping_) {
      console_.line(fmt::format("SIG{}: killing the ranks", ::sigabbrev_np(signal)));
      killed_ = true;
      ranks_.send(SIGKILL);
      return;
    }
    stop_requested_ns_ = monotonic_ns();
    console_.line(fmt::format("SIG{}: the ranks are asked to save and stop; a second signal kills them",
                              ::sigabbrev_np(signal)));
    ranks_.send(signal == SIGHUP ? SIGTERM : signal);
  }

  void record_first_lost_peer(const std::vector<RankView>& ranks) {
    const bool lost_peer = std::ranges::any_of(ranks, [](const RankView& view) {
      return view.exit && view.exit->signal == 0 && view.exit->code == kExitRankLost;
    });
    if (lost_peer && lost_peer_ns_ == 0) lost_peer_ns_ = monotonic_ns();
  }

  int report_and_stop(Diagnosis diagnosis) {
    const bool rejected = diagnosis.exit_code != kExitRankLost;
    if (rejected) diagnosis = collect_rejections(std::move(diagnosis));
    for (const std::string& line : diagnosis.lines) console_.line(line);
    const bool shown = rejected && ranks_.first_rank() == 0 && diagnosis.culprits.front() == 0;
    if (!diagnosis.culprits.empty() && !shown) print_log_tail(diagnosis.culprits.front());
    stop_remaining();
    return diagnosis.exit_code;
  }

  /// Waits briefly for other ranks, which usually reject the same settings or data: one report for all.
  Diagnosis collect_rejections(Diagnosis diagnosis) {
    const std::int64_t begin = monotonic_ns();
    while (!ranks_.all_exited() && !killed_ && seconds_since(begin) < kSameErrorS) tick();
    return diagnose(ranks_.views(), timeouts_, 0).value_or(std::move(diagnosis));
  }

  /// Handles a rank that stopped before the first step: no other rank can continue, and none has anything to
  /// save.
  int stop_early(const std::vector<RankView>& ranks) {
    const auto first = std::ranges::find_if(ranks, stopped_before_first_step);
    if (!stop_requested_)
      console_.line(
          fmt::format("rank {} was asked to stop before the first step; stopping the others", first->rank));
    stop_remaining();
    return kExitStopped;
  }

  /// Logs one line for a straggler; only the hang time-out stops it.
  void report_straggler(const std::vector<RankView>& ranks) {
    const auto straggler = find_straggler(ranks, kStragglerS, monotonic_ns());
    if (!straggler) return;
    const auto [reported, first] = reported_ns_.try_emplace(straggler->rank, monotonic_ns());
    if (!first && seconds_since(reported->second) < kRepeatReportS) return;
    reported->second = monotonic_ns();
    console_.line(straggler->line);
  }

  void print_log_tail(int rank) {
    const RankOutput& output = ranks_.output(rank);
    const auto lines = output.last_lines(kLogLines);
    console_.line(fmt::format("{} of {}{}", lines.empty() ? "no lines in the log" : "last lines",
                              output.log().string(), lines.empty() ? "" : ":"));
    for (const std::string& line : lines) console_.line("  | " + line);
  }

  void stop_remaining() {
    ranks_.kill_stopped();
    ranks_.send(SIGTERM);
    stopping_ = true;
    const std::int64_t begin = monotonic_ns();
    while (!ranks_.all_exited() && !killed_ && seconds_since(begin) < options_.grace_period_s) tick();
    std::vector<int> late;
    for (const RankView& view : ranks_.views()) {
      if (!view.exit) late.push_back(view.rank);
    }
    if (late.empty()) return;
    console_.line(fmt::format("killed because they did not end within {} s of SIGTERM: ranks {}",
                              options_.grace_period_s, fmt::join(late, ", ")));
    ranks_.send(SIGKILL);
  }

  static int final_exit_code(const std::vector<RankView>& ranks) {
    const bool stopped =
        std::ranges::any_of(ranks, [](const RankView& view) { return view.exit->code == kExitStopped; });
    return stopped ? kExitStopped : kExitDone;
  }

  const Options& options_;
  LocalRanks& ranks_;
  const Signals& signals_;
  Console& console_;
  Timeouts timeouts_;
  std::map<int, std::int64_t> reported_ns_;  // time of the last report by straggler
  std::int64_t lost_peer_ns_ = 0;            // when the first rank exited with kExitRankLost
  std::int64_t stop_requested_ns_ = 0;
  bool stop_requested_ = false;  // stop request by a signal to this process
  bool stopping_ = false;        // ranks are being stopped: the next signal kills them
  bool killed_ = false;
};

Options with_defaults(Options options) {
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

/// Prints how to resume, since no rank is left to do so.
void print_resume_hint(const Options& options, const AnnouncedRun& run, Console& console) {
  const CommandLine line = command_line_of_launcher(words_of_process(::getpid()), options.command);
  console.output(rank_loss_summary(line, run));
}

}  // namespace

int run(const Options& given) {
  Options options = with_defaults(given);
  const Signals signals;
  const LogFolder logs(options.log_dir, options.new_log_dir, options.node_rank,
                       {.stop = [&signals] { return signals.take_stop_request(); }});
  options.log_dir = logs.path();
  Console console;
  for (int restart = 0;; ++restart) {
    const int port = options.master_port == 0 ? free_port() : options.master_port + restart;
    LocalRanks ranks(options, console, port, restart);
    console.line(fmt::format("{} ranks, world of {}, master {}:{}, logs in {}", options.nproc_per_node,
                             options.nnodes * options.nproc_per_node, options.master_addr, port,
                             options.log_dir.string()));
    Monitor monitor(options, ranks, signals, console);
    const int code = monitor.run_to_completion();
    const bool lost = code == kExitRankLost && !monitor.was_asked_to_stop();
    if (!lost || restart == options.max_restarts) {
      if (code == kExitRankLost) print_resume_hint(options, monitor.announced(), console);
      return code;
    }
    console.line(fmt::format("restart {} of {}", restart + 1, options.max_restarts));
  }
}

}  // namespace colonnade::launch
