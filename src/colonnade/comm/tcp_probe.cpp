// Implements bind, connect and the store handshake directly, because LibTorch's TCPStore listens on all
// interfaces, retries once a second, logs each attempt, and waits forever for an answer from any listener.
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

/// RAII socket.
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

/// Detects a TCP self-connection: with no listener on an ephemeral port, the kernel may assign that same port
/// to the outgoing socket, which then receives its own data.
bool is_its_own_peer(const Socket& socket) {
  sockaddr_storage here{}, there{};
  socklen_t size = sizeof(here), size_there = sizeof(there);
  return getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&here), &size) == 0 &&
         getpeername(socket.fd(), reinterpret_cast<sockaddr*>(&there), &size_there) == 0 &&
         size == size_there && std::memcmp(&here, &there, size) == 0;
}

/// Connects within `timeout`; returns 0 or the errno.
int try_connect(const Socket& socket, const addrinfo& address, milliseconds timeout) {
  if (socket.fd() < 0) return errno;
  if (connect(socket.fd(), address.ai_addr, address.ai_addrlen) != 0 && errno != EINPROGRESS) return errno;
  if (!wait_until(socket, POLLOUT, Clock::now() + timeout)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 && is_its_own_peer(socket) ? ECONNREFUSED : error;
}

enum class Reply : unsigned char { kStore, kNotAStore, kNoReply, kClosed };

/// The handshake of c10d's client: the magic number, then a ping whose number a store echoes.
Reply ping_store(const Socket& socket, Clock::time_point end) {
  using c10d::detail::QueryType;
  constexpr std::uint32_t kPingNumber = 0x0c010ade;
  std::array<char, 10> request{static_cast<char>(QueryType::VALIDATE)};
  std::memcpy(&request[1], &c10d::detail::validationMagicNumber, sizeof(kPingNumber));
  request[5] = static_cast<char>(QueryType::PING);
  std::memcpy(&request[6], &kPingNumber, sizeof(kPingNumber));
  const ssize_t sent = send(socket.fd(), request.data(), request.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(request.size())) return Reply::kClosed;
  std::array<char, sizeof(kPingNumber)> reply{};
  for (std::size_t got = 0; got < reply.size();) {
    if (!wait_until(socket, POLLIN, end)) return Reply::kNoReply;
    const ssize_t more = recv(socket.fd(), &reply[got], reply.size() - got, 0);
    if (more <= 0) return got == 0 ? Reply::kClosed : Reply::kNotAStore;
    got += static_cast<std::size_t>(more);
  }
  return std::memcmp(reply.data(), &kPingNumber, sizeof(kPingNumber)) == 0 ? Reply::kStore
                                                                           : Reply::kNotAStore;
}

/// A listening socket, or -1 with errno set. An IPv6 socket also accepts IPv4 connections.
int try_listen(int family, int port, bool loopback_only) {
  const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1, off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));  // allow reuse in TIME_WAIT
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

/// Waits for the store of one job.
class StoreWait {
 public:
  StoreWait(const std::string& host, int port, milliseconds timeout)
      : host_(host), port_(port), timeout_(timeout) {}

  void run() {
    constexpr milliseconds kPollInterval(20);
    for (;;) {
      const bool last =
          Clock::now() - start_ > timeout_;  // retried once more, since this process may have been suspended
      if (try_addresses(last)) return;
      if (Clock::now() - start_ > kSlowStart && !std::exchange(logged_, true)) {
        log::info("rendezvous: waiting for rank 0 at {}:{}, up to {:g} s; so far: {}", host_, port_,
                  seconds(timeout_), reason_);
      }
      if (last) throw_timeout();
      std::this_thread::sleep_for(kPollInterval);
    }
  }

 private:
  static constexpr milliseconds kConnectTimeout{2000}, kDnsGrace{5000}, kSilenceTimeout{30'000};

  bool try_addresses(bool last) {
    const Addresses addresses = resolve(host_, port_, reason_);
    // In Kubernetes the DNS name of a service may appear some seconds after the pod.
    if (!addresses && (last || Clock::now() - start_ > kDnsGrace)) {
      throw ConfigError(
          fmt::format("MASTER_ADDR must resolve on this machine; got '{}': {}; use an IP address or "
                      "fix the DNS entry",
                      host_, reason_));
    }
    bool no_reply = false;
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      const Socket socket(a->ai_family);
      const int error = try_connect(socket, *a, std::min(kConnectTimeout, timeout_));
      if (error != 0) {
        reason_ = std::strerror(error);
        continue;
      }
      const Reply reply = wait_for_reply(socket);
      if (reply == Reply::kStore) return true;
      no_reply |= reply == Reply::kNoReply;
    }
    if (!no_reply) no_reply_since_.reset();
    return false;
  }

  /// A closed connection is not conclusive: rank 0 probes its port first, and some networks have proxies that
  /// accept connections for a rank that has not started yet.
  Reply wait_for_reply(const Socket& socket) {
    if (!no_reply_since_) no_reply_since_ = Clock::now();
    const Clock::time_point deadline = *no_reply_since_ + std::min(timeout_, kSilenceTimeout);
    const Reply reply = ping_store(socket, std::min(deadline, Clock::now() + kSlowStart));
    if (reply == Reply::kStore) return reply;
    reason_ = reply == Reply::kNotAStore ? "it does not answer as a store"
              : reply == Reply::kNoReply ? "it does not answer"
                                         : "connections are closed at once";
    if (reply == Reply::kNotAStore)
      throw ConfigError(
          fmt::format("MASTER_PORT: rank 0 must listen at {}:{}; got another program there: {}; stop it or "
                      "choose another port",
                      host_, port_, reason_));
    if (reply == Reply::kNoReply && Clock::now() >= deadline)
      throw CommError(fmt::format(
          "rendezvous: rank 0 must answer at {}:{}; got no data for {:g} s from the process listening "
          "there; check whether rank 0 is suspended, stop another program, or choose another port",
          host_, port_, seconds(std::min(timeout_, kSilenceTimeout))));
    return reply;
  }

  [[noreturn]] void throw_timeout() const {
    throw CommError(
        fmt::format("rendezvous: rank 0 must listen at {}:{}; got no answer within {:g} s: {}; see its log, "
                    "and check MASTER_ADDR and firewalls",
                    host_, port_, seconds(timeout_), reason_));
  }

  std::string host_;
  int port_;
  milliseconds timeout_;
  Clock::time_point start_ = Clock::now();
  std::optional<Clock::time_point> no_reply_since_;  ///< first connection without an answer
  std::string reason_;
  bool logged_ = false;
};

}  // namespace

int listen_on(int port, bool loopback_only) {
  // On loopback, ranks connect to 127.0.0.1. A machine without IPv6 needs the IPv4 fallback.
  int socket = loopback_only ? -1 : try_listen(AF_INET6, port, false);
  if (socket < 0) socket = try_listen(AF_INET, port, loopback_only);
  if (socket >= 0) return socket;
  throw ConfigError(
      fmt::format("MASTER_PORT must be free on rank 0; got port {}: {}; stop the job that "
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
