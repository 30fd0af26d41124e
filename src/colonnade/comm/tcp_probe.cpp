// bind and connect by hand: LibTorch's own store waits a second between attempts and logs each one.
#include "colonnade/comm/tcp_probe.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

#include "colonnade/base/error.h"

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

/// 0, or the errno of the attempt.
int try_connect(const addrinfo& address, std::chrono::milliseconds patience) {
  const Socket socket(address.ai_family);
  if (socket.fd() < 0) return errno;
  if (connect(socket.fd(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd waiting{socket.fd(), POLLOUT, 0};
  if (poll(&waiting, 1, static_cast<int>(patience.count())) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

}  // namespace

void check_port_is_free(int port) {
  const Socket socket(AF_INET);
  const int on = 1;
  setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on,
             sizeof(on));  // as the store: TIME_WAIT is no obstacle
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (bind(socket.fd(), generic, sizeof(address)) == 0 && listen(socket.fd(), 1) == 0) return;
  throw ConfigError(
      fmt::format("MASTER_PORT: rank 0 must be able to listen on it; got port {}: {}; end the job that "
                  "uses it or choose another port",
                  port, std::strerror(errno)));
}

void wait_for_listener(const std::string& host, int port, std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kPause(20), kPatience(2000), kNameService(5000);
  const auto start = std::chrono::steady_clock::now();
  std::string reason;
  for (;;) {
    const auto spent = std::chrono::steady_clock::now() - start;
    const Addresses addresses = resolve(host, port, reason);
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      const int error = try_connect(*a, std::min(kPatience, timeout));
      if (error == 0) return;
      reason = std::strerror(error);
    }
    // In Kubernetes the name of a service may appear some seconds after the pod.
    if (!addresses && spent > std::min(timeout, kNameService)) {
      throw ConfigError(
          fmt::format("MASTER_ADDR: the name must be known on this machine; got '{}': {}; use an address "
                      "or mend the name service",
                      host, reason));
    }
    if (spent > timeout) {
      throw CommError(fmt::format(
          "rendezvous: rank 0 must listen at {}:{}; got no answer within {:g} s: {}; see its log, "
          "and check MASTER_ADDR and firewalls",
          host, port, static_cast<double>(timeout.count()) / 1000, reason));
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace colonnade::comm
