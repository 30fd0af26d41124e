// See library.h: filters by what they are about, and what they share.
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

/// What a path like "a.0.b" leads to, an integer or none: the value itself. Undefined where its end is not
/// there; throws DataError where it goes on behind that. `instead`, if any, stands for each step that is not
/// there.
Value named_attribute(const Value& value, const Value& path, Arguments& a, const Value* instead = nullptr);

}  // namespace colonnade::chat_template
