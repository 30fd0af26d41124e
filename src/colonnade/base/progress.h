// Progress page: the current step, phase and collective of a rank, in shared memory that another process can
// read even after the rank was killed.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace colonnade {

/// CLOCK_MONOTONIC in nanoseconds; the same clock for all processes of a machine.
std::int64_t monotonic_ns();

/// An operation that a rank has started or waits for.
struct CollectiveMark {
  std::string what;            ///< operation name: "layer 3 / attention.proj / sum"
  std::string axes;            ///< axes of its group: "tp", "dp-cp"; "" if unknown
  std::vector<int> members;    ///< world ranks of the group, ascending
  std::uint64_t sequence = 0;  ///< 1 for the first collective of the group; 0 for point to point
  int peer = -1;               ///< world rank of the point-to-point peer; -1 for collectives
  std::int64_t since_ns = 0;   ///< start time of the operation or of the wait
};

/// Collective counters of one process group. Members call collectives in the same order, so equal sequence
/// numbers denote the same collective.
struct GroupProgress {
  std::string axes;
  std::vector<int> members;
  std::uint64_t started = 0;
  std::uint64_t finished = 0;
};

/// Snapshot of a progress page.
struct ProgressSnapshot {
  bool opened = false;  ///< whether a process has opened the page
  int pid = 0;
  int rank = -1;
  int world = 0;
  std::int64_t step = -1;  ///< -1 before the first step
  std::string phase;
  std::string note;                       ///< last error or warning; "" if none
  int agreed_exit_code = 0;               ///< see Progress::set_agreed_exit_code; 0 if unset
  std::int64_t heartbeat_ns = 0;          ///< time of the last heartbeat: any write to the page
  std::optional<CollectiveMark> last;     ///< most recently started operation
  std::optional<CollectiveMark> waiting;  ///< operation that the rank waits for now
  std::vector<GroupProgress> groups;
};

/// Handle of a started operation: returned by Progress::begin, passed to wait and end.
struct CollectiveTicket {
  int group = -1;
  int peer = -1;
  std::uint64_t sequence = 0;
};

/// Progress page written by this process. A write takes tens of nanoseconds, never blocks and never fails;
/// texts longer than their field are truncated. If the writer is killed at any instruction, the previous
/// value stays readable. Any thread may write; of two concurrent writes to the same text, one is dropped.
class Progress {
 public:
  /// A page in private memory, invisible to other processes.
  Progress();
  /// The page in file `path`, which is created or cleared. Throws Error if it cannot be opened or mapped.
  explicit Progress(const std::filesystem::path& path);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void set_rank(int rank, int world);
  void set_step(std::int64_t step);
  /// "init", "data", "forward-backward", "gradient sync", "optimizer", "checkpoint", "evaluate",
  /// "profile".
  void set_phase(std::string_view phase);
  void set_note(std::string_view note);
  /// All ranks of the world have agreed to exit with this code: no rank is lost, and a restart would fail the
  /// same way.
  void set_agreed_exit_code(int exit_code);
  /// Heartbeat of long work that writes nothing else.
  void heartbeat();

  /// Registers a process group and returns its index for `begin`; -1 if the page is full. A group with equal
  /// axes and members keeps its index. Call once per group, not per collective.
  int add_group(std::string_view axes, std::span<const int> members);
  /// Records the start of a collective or, with `peer` >= 0, of a message to or from that world rank.
  CollectiveTicket begin(int group, std::string_view what, int peer = -1);
  /// Records that the caller now blocks until the operation completes. A page shows one waiting thread.
  void wait(const CollectiveTicket& ticket, std::string_view what);
  /// Records the completion of the operation.
  void end(const CollectiveTicket& ticket);

  /// Adds time that a thread of this rank spent in communication.
  void add_communication(std::int64_t ns) { communication_ns_.fetch_add(ns, std::memory_order_relaxed); }
  /// Total communication time so far. Local to this process, not on the page.
  [[nodiscard]] std::int64_t communication_ns() const { return communication_ns_; }

  [[nodiscard]] ProgressSnapshot read() const;

 private:
  friend class ProgressReader;
  struct Page;
  void open();
  void touch();
  Page* page_;
  std::atomic<std::int64_t> communication_ns_{0};
};

/// Reader of a progress page that another process writes.
class ProgressReader {
 public:
  /// Maps the file of `fd`, which must be open for reading and writing, and grows it to the size of a page.
  /// Throws Error.
  explicit ProgressReader(int fd);
  ~ProgressReader();
  ProgressReader(ProgressReader&& other) noexcept;
  ProgressReader& operator=(ProgressReader&& other) noexcept;
  ProgressReader(const ProgressReader&) = delete;
  ProgressReader& operator=(const ProgressReader&) = delete;

  /// Never blocks, even if the writer was killed in the middle of a write.
  [[nodiscard]] ProgressSnapshot read() const;

 private:
  const Progress::Page* page_ = nullptr;
};

/// Progress page of the calling thread: that of an enclosing ProgressScope, else that of the process. The
/// first call opens the process's page: the file named by COLONNADE_PROGRESS_FILE (set by `colonnade
/// launch`), or private memory if the variable is unset or the file cannot be opened (with a warning).
///
/// This is the library's one mutable global: it is only reported to and never affects a result. Long-lived
/// objects (comm::Group) keep the pointer from their construction.
Progress& progress();

/// RAII override: within its lifetime, progress() on this thread returns `page`. For threads that act as
/// ranks.
class ProgressScope {
 public:
  explicit ProgressScope(Progress& page);
  ~ProgressScope();
  ProgressScope(const ProgressScope&) = delete;
  ProgressScope& operator=(const ProgressScope&) = delete;

 private:
  Progress* outer_;
};

}  // namespace colonnade
