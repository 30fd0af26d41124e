// The page of progress: what a rank is doing right now (step, phase, collective), in memory that a
// watcher in another process can read, also after the rank was killed.
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

/// CLOCK_MONOTONIC in nanoseconds: one clock for all processes of a machine.
std::int64_t monotonic_ns();

/// An operation that a rank has started or waits in.
struct CollectiveMark {
  std::string what;            ///< its name: "layer 3 / attention.proj / sum"
  std::string axes;            ///< its group: "tp", "dp-cp"; "" when the group is not known
  std::vector<int> members;    ///< world ranks of the group, ascending
  std::uint64_t sequence = 0;  ///< 1 for the first collective of the group; 0 for point to point
  int peer = -1;               ///< world rank of the other side of a point-to-point message
  std::int64_t since_ns = 0;   ///< when it was started, or when the wait began
};

/// One group of a rank: members call its collectives in the same order, so equal numbers are the
/// same collective.
struct GroupProgress {
  std::string axes;
  std::vector<int> members;
  std::uint64_t started = 0;
  std::uint64_t finished = 0;
};

/// One reading of a page.
struct ProgressSnapshot {
  bool opened = false;  ///< false: no process has opened the page yet
  int pid = 0;
  int rank = -1;
  int world = 0;
  std::int64_t step = -1;  ///< -1 before the first step
  std::string phase;
  std::string note;                       ///< the last error or warning, when there was one
  int agreed_end = 0;                     ///< see Progress::set_agreed_end; 0: none
  std::int64_t alive_ns = 0;              ///< the last sign of life: any write to the page
  std::optional<CollectiveMark> last;     ///< the newest operation started
  std::optional<CollectiveMark> waiting;  ///< the operation whose end the rank waits for now
  std::vector<GroupProgress> groups;
};

/// Started by Progress::begin, handed to wait and end. A plain value.
struct CollectiveTicket {
  int group = -1;
  int peer = -1;
  std::uint64_t sequence = 0;
};

/// A page that this process writes. Writing takes some tens of nanoseconds, never blocks and never
/// fails; texts longer than their field are cut. A writer killed at any instruction leaves the
/// previous value readable. Any thread may write; when two write the same text in the same instant,
/// one of the texts is dropped.
class Progress {
 public:
  /// A page in private memory that nobody else reads.
  Progress();
  /// The page in `path`, emptied, and made when it is not there. Throws Error when it cannot be
  /// opened or mapped.
  explicit Progress(const std::filesystem::path& path);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void set_rank(int rank, int world);
  void set_step(std::int64_t step);
  /// "init", "data", "forward-backward", "gradient sync", "optimizer", "checkpoint", "evaluate".
  void set_phase(std::string_view phase);
  void set_note(std::string_view note);
  /// All ranks of the world are about to end with this exit code, for a reason that all of them know: none is
  /// lost, and the same would happen again.
  void set_agreed_end(int exit_code);
  /// A sign of life from long work that changes nothing else.
  void alive();

  /// Makes a group known and returns its number for `begin`; -1 when the page is full. A group with
  /// equal axes and members keeps its number. Call once per group, not per collective.
  int add_group(std::string_view axes, std::span<const int> members);
  /// A collective (or, with `peer` >= 0, a message to or from that world rank) is started.
  CollectiveTicket begin(int group, std::string_view what, int peer = -1);
  /// The caller now blocks until the operation is over. One waiting thread per page is shown.
  void wait(const CollectiveTicket& ticket, std::string_view what);
  /// The operation is over.
  void end(const CollectiveTicket& ticket);

  /// Counts time that a thread of this rank has spent in operations of groups.
  void add_communication(std::int64_t ns) { communication_ns_.fetch_add(ns, std::memory_order_relaxed); }
  /// Their sum so far. Not on the page: other processes do not see it.
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

/// A page that another process writes.
class ProgressReader {
 public:
  /// Maps the file behind `fd`, which must be open for reading and writing, and grows it to the
  /// size of a page. Throws Error.
  explicit ProgressReader(int fd);
  ~ProgressReader();
  ProgressReader(ProgressReader&& other) noexcept;
  ProgressReader& operator=(ProgressReader&& other) noexcept;
  ProgressReader(const ProgressReader&) = delete;
  ProgressReader& operator=(const ProgressReader&) = delete;

  /// Never blocks, whatever the writer did or however it died.
  [[nodiscard]] ProgressSnapshot read() const;

 private:
  const Progress::Page* page_ = nullptr;
};

/// The page of the calling thread: the one of a surrounding ProgressScope, else the page of the
/// process, which is opened at the first call: the file named by COLONNADE_PROGRESS_FILE (set by
/// `colonnade launch`), or private memory when it is unset or cannot be opened (a warning says so).
///
/// This is the one mutable global of the library: it only reports, nothing is decided by it. Long-lived
/// objects that report (comm::Group) keep the pointer they got when they were made.
Progress& progress();

/// Within its life, progress() on this thread is `page`: for threads that stand in for ranks.
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
