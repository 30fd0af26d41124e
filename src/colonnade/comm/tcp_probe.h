// Two questions about a TCP port, asked before the store is made, so that the answers are clear.
#pragma once

#include <chrono>
#include <string>

namespace colonnade::comm {

/// Of waiting for other ranks at the start; then a line says for whom.
inline constexpr std::chrono::milliseconds kQuietStart{5000};

/// Throws ConfigError when another program listens on `port` of this machine.
void check_port_is_free(int port);

/// Returns as soon as a store of a job answers at host:port, asking every 20 ms; after 5 s a line says who is
/// waited for. Throws ConfigError when the name of the host is unknown or when whoever listens there answers
/// as no store does. Throws CommError when no store has answered within `timeout`, or when whoever listens
/// has said nothing for 30 s: a rank 0 that is stopped, or another program.
void wait_for_store(const std::string& host, int port, std::chrono::milliseconds timeout);

}  // namespace colonnade::comm
