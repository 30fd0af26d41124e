// Values of a chat template that know which messages they come from: what operations keep of it.
#pragma once

#include <span>
#include <string>

#include "colonnade/chat_template/value.h"

namespace colonnade::chat_template {

/// The value with all strings, numbers and booleans in it as parts of message `message`.
Value out_of_message(const Value& value, std::size_t message, const Budget& budget);
/// All messages in `value`, as the provenance of a string of `size` bytes.
Provenance whole_provenance(const Value& value, std::size_t size, Budget& budget);
/// Of a value that is written as `text`.
Provenance provenance_of(const Value& value, const std::string& text, Budget& budget);

/// The first argument of each of these is its result without provenance.
/// A filter, a method or a slice of `given`.
Value derived(Value result, const Value& given, std::span<const Value> arguments, Budget& budget);
/// The texts of a list with `between` between them.
Value joined(Value result, const Value& list, const Value& between, Budget& budget);
/// An operator between two values.
Value added(Value result, const Value& left, const Value& right, Budget& budget);

}  // namespace colonnade::chat_template
