// See progress.h. Texts are double-buffered: the writer fills the inactive copy and then flips, so a reader
// never depends on the writer staying alive.
#include "colonnade/base/progress.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"

namespace colonnade {
namespace {

constexpr std::uint64_t kMagic = 0x3230676f72706c63ULL;  // "clprog02"
constexpr int kMaxGroups = 24;

/// Lock-free double buffer of a value that one process writes and another reads.
template <typename T>
class Shared {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % 8 == 0);
  static constexpr std::size_t kWords = sizeof(T) / 8;
  using Words = std::array<std::uint64_t, kWords>;

 public:
  void store(const T& value) {
    if (busy_.exchange(1, std::memory_order_acquire) != 0)
      return;  // another thread is writing: drop this value
    const std::uint64_t version = version_.load(std::memory_order_relaxed) + 1;
    const auto words = std::bit_cast<Words>(value);
    std::atomic_thread_fence(std::memory_order_release);
    for (std::size_t i = 0; i < kWords; ++i)
      copies_[version & 1][i].store(words[i], std::memory_order_relaxed);
    version_.store(version, std::memory_order_release);
    busy_.store(0, std::memory_order_release);
  }

  /// A consistent value; a default value if 64 attempts were all overtaken by writes.
  [[nodiscard]] T load() const {
    for (int attempt = 0; attempt < 64; ++attempt) {
      const std::uint64_t version = version_.load(std::memory_order_acquire);
      Words words{};
      for (std::size_t i = 0; i < kWords; ++i)
        words[i] = copies_[version & 1][i].load(std::memory_order_relaxed);
      std::atomic_thread_fence(std::memory_order_acquire);
      if (version_.load(std::memory_order_relaxed) == version) return std::bit_cast<T>(words);
    }
    return T{};
  }

 private:
  std::atomic<std::uint64_t> version_;
  std::atomic<std::uint64_t> busy_;
  std::array<std::array<std::atomic<std::uint64_t>, kWords>, 2> copies_;
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

template <std::size_t kBytes>
struct Text {
  std::array<char, kBytes> chars{};
  Text() = default;
  explicit Text(std::string_view text) { text.copy(chars.data(), kBytes - 1); }
  [[nodiscard]] std::string str() const { return {chars.data(), ::strnlen(chars.data(), kBytes)}; }
};

struct Mark {
  Text<112> what;
  std::uint64_t sequence = 0;
  std::int64_t since_ns = 0;
  std::int32_t group = -1;
  std::int32_t peer = -1;
  std::uint64_t present = 0;
};

struct GroupName {
  Text<24> axes;
  Text<232> members;
};

struct GroupSlot {
  Shared<GroupName> name;
  std::atomic<std::uint64_t> started;
  std::atomic<std::uint64_t> finished;
};

/// Ascending ranks as ranges: "0-7", "0-24:8", "1,5,6"; parsed by parse_ranks.
std::string print_ranks(std::span<const int> ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t last = i;
    const int stride = i + 1 < ranks.size() ? ranks[i + 1] - ranks[i] : 1;
    while (last + 1 < ranks.size() && ranks[last + 1] - ranks[last] == stride) ++last;
    if (last < i + 2) last = i;
    text += fmt::format("{}{}", text.empty() ? "" : ",", ranks[i]);
    if (last > i) text += fmt::format("-{}", ranks[last]) + (stride != 1 ? fmt::format(":{}", stride) : "");
    i = last + 1;
  }
  return text;
}

/// Inverse of print_ranks; stops at the first malformed item.
std::vector<int> parse_ranks(const std::string& text) {
  std::vector<int> ranks;
  const char* at = text.data();
  const char* const end = at + text.size();
  const auto number = [&](int& value) {
    const auto [next, error] = std::from_chars(at, end, value);
    at = next;
    return error == std::errc();
  };
  while (at < end) {
    int first = 0;
    if (!number(first)) break;
    int last = first;
    int stride = 1;
    if (at < end && *at == '-' && (++at, !number(last))) break;
    if (at < end && *at == ':' && (++at, !number(stride))) break;
    if (first < 0 || last < 0 || stride < 1 || (last - first) / stride > (1 << 20)) break;
    for (std::int64_t rank = first; rank <= last; rank += stride) ranks.push_back(static_cast<int>(rank));
    if (at < end && *at++ != ',') break;
  }
  return ranks;
}

}  // namespace

/// Memory layout of a page. All zeros: not opened yet.
struct Progress::Page {
  std::atomic<std::uint64_t> magic;
  std::atomic<int> pid;
  std::atomic<int> rank;
  std::atomic<int> world;
  std::atomic<int> num_groups;
  std::atomic<int> agreed_exit_code;
  std::atomic<std::int64_t> step;
  std::atomic<std::int64_t> heartbeat_ns;
  Shared<Text<40>> phase;
  Shared<Text<400>> note;
  Shared<Mark> last;
  Shared<Mark> waiting;
  std::array<GroupSlot, kMaxGroups> groups;
};

namespace {

template <typename Page>
Page* map_page(int fd) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* const address = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, flags, fd, 0);
  if (address == MAP_FAILED)
    throw Error(fmt::format("progress page: cannot be mapped; {}", std::strerror(errno)));
  return static_cast<Page*>(address);
}

/// Grows the file: access beyond its end would raise SIGBUS.
void ensure_size(int fd, std::size_t bytes) {
  struct stat info {};
  if (::fstat(fd, &info) != 0 ||
      (info.st_size < static_cast<off_t>(bytes) && ::ftruncate(fd, static_cast<off_t>(bytes)) != 0))
    throw Error(fmt::format("progress page: cannot be made {} bytes large; {}", bytes, std::strerror(errno)));
}

template <typename Page>
std::optional<CollectiveMark> read_mark(const Page& page, const Mark& mark) {
  if (mark.present == 0) return std::nullopt;
  CollectiveMark result{mark.what.str(), "", {}, mark.sequence, mark.peer, mark.since_ns};
  if (mark.group >= 0 && mark.group < kMaxGroups) {
    const auto name = page.groups[static_cast<std::size_t>(mark.group)].name.load();
    result.axes = name.axes.str();
    result.members = parse_ranks(name.members.str());
  }
  return result;
}

template <typename Page>
ProgressSnapshot read_page(const Page& page) {
  ProgressSnapshot now;
  if (page.magic.load(std::memory_order_acquire) != kMagic) return now;
  now.opened = true;
  now.pid = page.pid.load();
  now.rank = page.rank.load();
  now.world = page.world.load();
  now.step = page.step.load();
  now.agreed_exit_code = page.agreed_exit_code.load();
  now.heartbeat_ns = page.heartbeat_ns.load();
  now.phase = page.phase.load().str();
  now.note = page.note.load().str();
  now.last = read_mark(page, page.last.load());
  now.waiting = read_mark(page, page.waiting.load());
  const int groups = std::clamp(page.num_groups.load(), 0, kMaxGroups);
  for (int i = 0; i < groups; ++i) {
    const auto& slot = page.groups[static_cast<std::size_t>(i)];
    const auto name = slot.name.load();
    now.groups.push_back(
        {name.axes.str(), parse_ranks(name.members.str()), slot.started.load(), slot.finished.load()});
  }
  return now;
}

// The one mutable global (see progress.h): the page that this thread reports to.
thread_local Progress* page_of_thread = nullptr;  // NOLINT(*-non-const-global-variables)

/// The page named by the environment, else a private one: a page that cannot be opened must not stop a run.
std::unique_ptr<Progress> open_process_page() {
  const char* const path = std::getenv("COLONNADE_PROGRESS_FILE");
  if (path == nullptr || *path == '\0') return std::make_unique<Progress>();
  try {
    return std::make_unique<Progress>(std::filesystem::path(path));
  } catch (const Error& error) {
    log::warning("{}: {}; the launcher cannot monitor this rank", path, error.what());
    return std::make_unique<Progress>();
  }
}

}  // namespace

std::int64_t monotonic_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

Progress::Progress() : page_(map_page<Page>(-1)) { open(); }

Progress::Progress(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) throw Error(fmt::format("progress page: cannot be opened; {}", std::strerror(errno)));
  try {
    ensure_size(fd, sizeof(Page));
    page_ = map_page<Page>(fd);
  } catch (...) {
    ::close(fd);
    throw;
  }
  ::close(fd);
  page_ = new (page_) Page{};  // clears values of a previous writer, half-written ones included
  open();
}

Progress::~Progress() { ::munmap(page_, sizeof(Page)); }

void Progress::open() {
  page_->step = -1;
  page_->rank = -1;
  page_->pid = ::getpid();
  touch();
  page_->magic.store(kMagic, std::memory_order_release);
}

void Progress::touch() { page_->heartbeat_ns.store(monotonic_ns(), std::memory_order_relaxed); }
void Progress::heartbeat() { touch(); }

void Progress::set_rank(int rank, int world) {
  page_->rank = rank;
  page_->world = world;
  touch();
}

void Progress::set_step(std::int64_t step) {
  page_->step.store(step, std::memory_order_relaxed);
  touch();
}

void Progress::set_phase(std::string_view phase) {
  page_->phase.store(Text<40>(phase));
  touch();
}

void Progress::set_note(std::string_view note) {
  page_->note.store(Text<400>(note));
  touch();
}

void Progress::set_agreed_exit_code(int exit_code) {
  page_->agreed_exit_code = exit_code;
  touch();
}

int Progress::add_group(std::string_view axes, std::span<const int> members) {
  const GroupName name{Text<24>(axes), Text<232>(print_ranks(members))};
  const int known = std::min(page_->num_groups.load(), kMaxGroups);
  for (int i = 0; i < known; ++i) {
    const GroupName other = page_->groups[static_cast<std::size_t>(i)].name.load();
    if (other.axes.chars == name.axes.chars && other.members.chars == name.members.chars) return i;
  }
  const int slot = page_->num_groups.fetch_add(1);
  if (slot >= kMaxGroups) return -1;
  page_->groups[static_cast<std::size_t>(slot)].name.store(name);
  return slot;
}

CollectiveTicket Progress::begin(int group, std::string_view what, int peer) {
  CollectiveTicket ticket{group, peer, 0};
  if (group >= 0 && group < kMaxGroups && peer < 0)
    ticket.sequence = page_->groups[static_cast<std::size_t>(group)].started.fetch_add(1) + 1;
  page_->last.store({Text<112>(what), ticket.sequence, monotonic_ns(), group, peer, 1});
  touch();
  return ticket;
}

void Progress::wait(const CollectiveTicket& ticket, std::string_view what) {
  page_->waiting.store({Text<112>(what), ticket.sequence, monotonic_ns(), ticket.group, ticket.peer, 1});
  touch();
}

void Progress::end(const CollectiveTicket& ticket) {
  if (ticket.group >= 0 && ticket.group < kMaxGroups && ticket.sequence > 0)
    page_->groups[static_cast<std::size_t>(ticket.group)].finished.fetch_add(1);
  const Mark shown = page_->waiting.load();
  const bool mine =
      shown.group == ticket.group && shown.peer == ticket.peer && shown.sequence == ticket.sequence;
  if (mine) page_->waiting.store(Mark{});  // another thread may be waiting for another operation
  touch();
}

ProgressSnapshot Progress::read() const { return read_page(*page_); }

ProgressReader::ProgressReader(int fd) {
  ensure_size(fd, sizeof(Progress::Page));
  page_ = map_page<Progress::Page>(fd);
}

ProgressReader::~ProgressReader() {
  if (page_ != nullptr) ::munmap(const_cast<Progress::Page*>(page_), sizeof(Progress::Page));
}

ProgressReader::ProgressReader(ProgressReader&& other) noexcept
    : page_(std::exchange(other.page_, nullptr)) {}

ProgressReader& ProgressReader::operator=(ProgressReader&& other) noexcept {
  std::swap(page_, other.page_);
  return *this;
}

ProgressSnapshot ProgressReader::read() const { return read_page(*page_); }

Progress& progress() {
  if (page_of_thread != nullptr) return *page_of_thread;
  static const std::unique_ptr<Progress> page_of_process = open_process_page();
  return *page_of_process;
}

ProgressScope::ProgressScope(Progress& page) : outer_(std::exchange(page_of_thread, &page)) {}
ProgressScope::~ProgressScope() { page_of_thread = outer_; }

}  // namespace colonnade
