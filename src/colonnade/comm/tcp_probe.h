// Two questions about a TCP port, asked before the store is made, so that the answers are clear.
#pragma once

#include <chrono>
#include <string>

namespace colonnade::comm {

/// Throws ConfigError when another program listens on `port` of this machine.
void check_port_is_free(int port);

/// Returns as soon as somebody listens at host:port, asking every 20 ms. Throws ConfigError when the
/// name of the host is unknown, CommError when nobody has answered after `timeout`.
void wait_for_listener(const std::string& host, int port, std::chrono::milliseconds timeout);

}  // namespace colonnade::comm
