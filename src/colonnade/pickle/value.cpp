// See value.h.
#include "colonnade/pickle/value.h"

namespace colonnade::pickle {

const Value* find(const Value* dict, std::string_view key) {
  if (dict == nullptr || !dict->is(Kind::kDict)) return nullptr;
  const Value* found = nullptr;
  for (std::size_t i = 0; i + 1 < dict->items.size(); i += 2)
    if (dict->items[i]->is_text(key)) found = dict->items[i + 1];  // the last one counts, as in Python
  return found;
}

const Value* attribute(const Value* object, std::string_view name) {
  if (object == nullptr) return nullptr;
  return find(object->is(Kind::kObject) ? object->state : object, name);
}

bool read_integers(const Value* value, std::vector<std::int64_t>& integers) {
  if (value == nullptr || !(value->is(Kind::kList) || value->is(Kind::kTuple))) return false;
  integers.clear();
  for (const Value* item : value->items) {
    if (!item->is(Kind::kInt)) return false;
    integers.push_back(item->integer);
  }
  return true;
}

}  // namespace colonnade::pickle
