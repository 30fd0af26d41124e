// The listening socket of the job's store, and the wait for the store of rank 0: both report what is wrong
// more clearly than the store itself.
#pragma once

#include <chrono>
#include <string>

namespace colonnade::comm {

/// Of waiting for other ranks at the start; then a line says for whom.
inline constexpr std::chrono::milliseconds kQuietStart{5000};

/// A listening socket on `port` (0: any free one) for the store, which owns it from then on. `loopback_only`:
/// programs on other machines cannot connect. Throws ConfigError when another program listens on the port.
int listen_on(int port, bool loopback_only);
/// The port of a socket that listen_on() made.
int port_of(int socket);

/// Returns as soon as a store of a job answers at host:port, asking every 20 ms; after 5 s a line says who is
/// waited for. Throws ConfigError when the name of the host is unknown or when whoever listens there answers
/// as no store does. Throws CommError when no store has answered within `timeout`, or when whoever listens
/// has said nothing for 30 s: a rank 0 that is stopped, or another program.
void wait_for_store(const std::string& host, int port, std::chrono::milliseconds timeout);

}  // namespace colonnade::comm
