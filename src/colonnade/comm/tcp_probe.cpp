// bind, connect and a store's first question by hand: LibTorch's own store listens on all interfaces, waits a
// second between attempts, logs each one, and waits without end for an answer of whoever listens.
#include "colonnade/comm/tcp_probe.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <torch/csrc/distributed/c10d/TCPStoreBackend.hpp>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"

namespace colonnade::comm {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// A socket that is closed at the end of its life.
class Socket {
 public:
  explicit Socket(int family) : fd_(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

Addresses resolve(const std::string& host, int port, std::string& reason) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int status = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (status != 0) reason = gai_strerror(status);
  return {status == 0 ? found : nullptr, &freeaddrinfo};
}

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

bool wait_until(const Socket& socket, short event, Clock::time_point end) {
  const auto left = std::chrono::ceil<milliseconds>(end - Clock::now()).count();
  pollfd waiting{socket.fd(), event, 0};
  return poll(&waiting, 1, static_cast<int>(std::max<std::int64_t>(left, 0))) > 0;
}

/// Where nobody listens on a port that the system gives to outgoing connections, it may give it to the very
/// one that goes there; that connection then hears its own words.
bool is_its_own_peer(const Socket& socket) {
  sockaddr_storage here{}, there{};
  socklen_t size = sizeof(here), size_there = sizeof(there);
  return getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&here), &size) == 0 &&
         getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&there), &size_there) == 0 &&
         size == size_there && std::memcmp(&here, &there, size) == 0;
}

/// 0, or the errno of the attempt.
int try_connect(const Socket& socket, const addrinfo& address, milliseconds patience) {
  if (socket.fd() < 0) return errno;
  if (connect(socket.fd(), address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS) return errno;
  if (!wait_until(socket, POLLOUT, Clock::now() + patience)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 && is_its_own_peer(socket) ? ECONNREFUSED : error;
}

enum class Answer : unsigned char { kStore, kOther, kNone, kClosed };

/// Asks a connected socket as c10d's client does: the magic number, then a ping with a number that a store
/// sends back.
Answer ask(const Socket& socket, Clock::time_point end) {
  using c10d::detail::QueryType;
  constexpr std::uint32_t kNumber = 0x0c010ade;
  std::array<char, 10> question{static_cast<char>(QueryType::VALIDATE)};
  std::memcpy(&question[1], &c10d::detail::validationMagicNumber, sizeof(kNumber));
  question[5] = static_cast<char>(QueryType::PING);
  std::memcpy(&question[6], &kNumber, sizeof(kNumber));
  const ssize_t sent = send(socket.fd(), question.data(), question.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(question.size())) return Answer::kClosed;
  std::array<char, sizeof(kNumber)> answer{};
  for (std::size_t got = 0; got < answer.size();) {
    if (!wait_until(socket, POLLIN, end)) return Answer::kNone;
    const ssize_t more = recv(socket.fd(), &answer[got], answer.size() - got, 0);
    if (more <= 0) return got == 0 ? Answer::kClosed : Answer::kOther;
    got += static_cast<std::size_t>(more);
  }
  return std::memcmp(answer.data(), &kNumber, sizeof(kNumber)) == 0 ? Answer::kStore : Answer::kOther;
}

/// A listening socket, or -1 and errno. One of IPv6 also takes connections of IPv4.
int try_listen(int family, int port, bool loopback_only) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1, off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));  // TIME_WAIT is no obstacle
  setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(static_cast<std::uint16_t>(port));
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_port = v6.sin6_port;
  v4.sin_addr.s_addr = htonl(loopback_only ? INADDR_LOOPBACK : INADDR_ANY);
  const bool bound = family == AF_INET6 ? bind(fd, reinterpret_cast<const sockaddr*>(&v6), sizeof(v6)) == 0
                                        : bind(fd, reinterpret_cast<const sockaddr*>(&v4), sizeof(v4)) == 0;
  if (bound && listen(fd, SOMAXCONN) == 0) return fd;
  const int reason = errno;
  close(fd);
  errno = reason;
  return -1;
}

double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

/// The wait for the store of one job.
class StoreWait {
 public:
  StoreWait(const std::string& host, int port, milliseconds timeout)
      : host_(host), port_(port), timeout_(timeout) {}

  void run() {
    constexpr milliseconds kPause(20);
    for (;;) {
      const bool last = Clock::now() - start_ > timeout_;  // this process may have been stopped meanwhile
      if (try_addresses(last)) return;
      if (Clock::now() - start_ > kQuietStart && !std::exchange(said_, true)) {
        log::info("rendezvous: waiting for rank 0 at {}:{}, up to {:g} s; so far: {}", host_, port_,
                  seconds(timeout_), reason_);
      }
      if (last) give_up();
      std::this_thread::sleep_for(kPause);
    }
  }

 private:
  static constexpr milliseconds kPatience{2000}, kNameService{5000}, kSilence{30'000};

  bool try_addresses(bool last) {
    const Addresses addresses = resolve(host_, port_, reason_);
    // In Kubernetes the name of a service may appear some seconds after the pod.
    if (!addresses && (last || Clock::now() - start_ > kNameService)) {
      throw ConfigError(
          fmt::format("MASTER_ADDR: the name must be known on this machine; got '{}': {}; use an address "
                      "or mend the name service",
                      host_, reason_));
    }
    bool silent = false;
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      const Socket socket(a->ai_family);
      const int error = try_connect(socket, *a, std::min(kPatience, timeout_));
      if (error != 0) {
        reason_ = std::strerror(error);
        continue;
      }
      const Answer answer = wait_for_answer(socket);
      if (answer == Answer::kStore) return true;
      silent |= answer == Answer::kNone;
    }
    if (!silent) silent_since_.reset();
    return false;
  }

  /// A connection that is closed proves nothing: rank 0 tries its port first, and some networks have proxies
  /// that accept for a rank that is not there yet.
  Answer wait_for_answer(const Socket& socket) {
    if (!silent_since_) silent_since_ = Clock::now();
    const Clock::time_point patience = *silent_since_ + std::min(timeout_, kSilence);
    const Answer answer = ask(socket, std::min(patience, Clock::now() + kQuietStart));
    if (answer == Answer::kStore) return answer;
    reason_ = answer == Answer::kOther  ? "it does not speak as a store"
              : answer == Answer::kNone ? "it says nothing"
                                        : "connections are closed at once";
    if (answer == Answer::kOther)
      throw ConfigError(
          fmt::format("MASTER_PORT: rank 0 must listen at {}:{}; got another program there: {}; end it or "
                      "choose another port",
                      host_, port_, reason_));
    if (answer == Answer::kNone && Clock::now() >= patience)
      throw CommError(
          fmt::format("rendezvous: rank 0 must answer at {}:{}; got silence for {:g} s from whoever listens "
                      "there; see whether rank 0 is stopped, or end another program or choose another port",
                      host_, port_, seconds(std::min(timeout_, kSilence))));
    return answer;
  }

  [[noreturn]] void give_up() const {
    throw CommError(
        fmt::format("rendezvous: rank 0 must listen at {}:{}; got no answer within {:g} s: {}; see its log, "
                    "and check MASTER_ADDR and firewalls",
                    host_, port_, seconds(timeout_), reason_));
  }

  std::string host_;
  int port_;
  milliseconds timeout_;
  Clock::time_point start_ = Clock::now();
  std::optional<Clock::time_point> silent_since_;  ///< somebody listens and says nothing
  std::string reason_;
  bool said_ = false;
};

}  // namespace

int listen_on(int port, bool loopback_only) {
  // On loopback ranks connect to 127.0.0.1. A machine without IPv6 has the second family alone.
  int socket = loopback_only ? -1 : try_listen(AF_INET6, port, false);
  if (socket < 0) socket = try_listen(AF_INET, port, loopback_only);
  if (socket >= 0) return socket;
  throw ConfigError(
      fmt::format("MASTER_PORT: rank 0 must be able to listen on it; got port {}: {}; end the job that "
                  "uses it or choose another port",
                  port, std::strerror(errno)));
}

int port_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

void wait_for_store(const std::string& host, int port, milliseconds timeout) {
  StoreWait(host, port, timeout).run();
}

}  // namespace colonnade::comm
