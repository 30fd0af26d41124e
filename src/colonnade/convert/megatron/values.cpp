// See values.h.
#include "colonnade/convert/megatron/values.h"

#include <cmath>

namespace colonnade::convert::megatron {

using nlohmann::json;
using pickle::Kind;

json to_json(const pickle::Value* value, int depth) {
  constexpr int kDeepest = 8;
  if (value == nullptr || depth > kDeepest) return nullptr;
  switch (value->kind) {
    case Kind::kBool:
      return value->integer != 0;
    case Kind::kInt:
      return value->integer;
    case Kind::kFloat:
      return std::isfinite(value->real) ? json(value->real) : json();
    case Kind::kText:
    case Kind::kClass:
      return value->text;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kSet: {
      json list = json::array();
      for (const pickle::Value* item : value->items) list.push_back(to_json(item, depth + 1));
      return list;
    }
    case Kind::kDict: {
      json object = json::object();
      for (std::size_t i = 0; i + 1 < value->items.size(); i += 2) {
        const pickle::Value& key = *value->items[i];
        if (key.is(Kind::kText))
          object[key.text] = to_json(value->items[i + 1], depth + 1);
        else if (key.is(Kind::kInt))
          object[std::to_string(key.integer)] = to_json(value->items[i + 1], depth + 1);
      }
      return object;
    }
    case Kind::kObject: {
      if (value->state != nullptr && value->state->is(Kind::kDict)) return to_json(value->state, depth + 1);
      json arguments = json::array();
      for (const pickle::Value* item : value->items) arguments.push_back(to_json(item, depth + 1));
      return {{"class", value->text}, {"arguments", arguments}};
    }
    default:
      return nullptr;
  }
}

}  // namespace colonnade::convert::megatron
