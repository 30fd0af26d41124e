// See library.h: tables of filters and their shared functions.
#pragma once

#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "colonnade/chat_template/library.h"

namespace colonnade::chat_template {

using Filter = Value (*)(const Value&, Arguments&);
using Filters = std::map<std::string_view, Filter>;

const Filters& number_filters();
const Filters& order_filters();
const Filters& text_filters();

/// The value at a path such as "a.0.b" or an integer; none is the value itself. Undefined if the last step is
/// missing; throws DataError if an earlier step is. `instead`, if given, replaces every missing step.
Value named_attribute(const Value& value, const Value& path, Arguments& a, const Value* instead = nullptr);

}  // namespace colonnade::chat_template
