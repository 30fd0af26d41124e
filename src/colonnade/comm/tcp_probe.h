// Listening socket of the job's store, and the wait for rank 0's store, with clearer errors than TCPStore's
// own.
#pragma once

#include <chrono>
#include <string>

namespace colonnade::comm {

/// Time after which a wait for other ranks at the start is logged.
inline constexpr std::chrono::milliseconds kSlowStart{5000};

/// A listening socket on `port` (0: any free port); the store takes ownership. With `loopback_only` other
/// machines cannot connect. Throws ConfigError if another program listens on the port.
int listen_on(int port, bool loopback_only);
/// Port of a socket returned by listen_on().
int port_of(int socket);

/// Returns as soon as a store answers at host:port, polling every 20 ms; logs the wait after kSlowStart.
/// Throws ConfigError if the host name is unknown or the listener answers unlike a store. Throws CommError if
/// no store answers within `timeout`, or the listener sends no data for 30 s (a suspended rank 0, or another
/// program).
void wait_for_store(const std::string& host, int port, std::chrono::milliseconds timeout);

}  // namespace colonnade::comm
