// Provenance of the results of operations on values.
#pragma once

#include <span>
#include <string>

#include "colonnade/chat_template/value.h"

namespace colonnade::chat_template {

/// The value with all its strings, numbers and booleans attributed to message `message`.
Value attributed(const Value& value, std::size_t message, const Budget& budget);
/// Provenance of a string of `size` bytes, all from every message in `value`.
Provenance merged_provenance(const Value& value, std::size_t size, Budget& budget);
/// Provenance of a value that is written as `text`.
Provenance provenance_of(const Value& value, const std::string& text, Budget& budget);

// The first argument of each of these is the result of an operation, which they return with its provenance.

/// The result of a filter, a method or a slice of `given`.
Value derived(Value result, const Value& given, std::span<const Value> arguments, Budget& budget);
/// The result of joining a list with `between`.
Value joined(Value result, const Value& list, const Value& between, Budget& budget);
/// The result of a binary operator.
Value added(Value result, const Value& left, const Value& right, Budget& budget);

}  // namespace colonnade::chat_template
