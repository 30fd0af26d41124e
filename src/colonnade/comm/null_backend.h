// Backend of dry runs: communicates nothing, logs every call.
#pragma once

#include <memory>

#include "colonnade/comm/call_log.h"
#include "colonnade/comm/communicators.h"

namespace colonnade::comm {

/// Factory of groups whose calls return at once. Meta tensors are unchanged. For other tensors every peer is
/// assumed to hold this rank's values: gathers repeat `in`; reductions and receives leave the values
/// unchanged. `log` may be null.
std::shared_ptr<GroupFactory> null_factory(std::shared_ptr<CallLog> log);

}  // namespace colonnade::comm
