// Reads Python pickles of protocol 0 to 5 without executing anything. Source: Python's Lib/pickletools.py.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "colonnade/pickle/value.h"

namespace colonnade::pickle {

/// Parses one pickle. Linear in time and memory: every length is checked against the bytes that are left.
/// OrderedDict becomes a dict, torch.Size a tuple, set and frozenset a set, _codecs.encode bytes. `source`
/// names the file in errors. Throws DataError for a class that is not known (classes.h), with its name, and
/// for a damaged or truncated pickle, with the offset.
Document read(std::span<const std::byte> bytes, const std::string& source);

}  // namespace colonnade::pickle
