// See value_provenance.h.
#include "colonnade/chat_template/value_provenance.h"

#include <set>

namespace colonnade::chat_template {
namespace {

/// Every visit costs, because templates can nest one list many times.
void collect_messages(const Value& value, std::set<std::size_t>& messages, Budget& budget) {
  budget.spend(1 + value.provenance().size());
  for (const SourceRange& source : value.provenance()) messages.insert(source.message);
  if (const List* list = value.list())
    for (const Value& item : list->items) collect_messages(item, messages, budget);
  if (const Mapping* mapping = value.mapping())
    for (const auto& item : mapping->items) collect_messages(item.second, messages, budget);
}

}  // namespace

Value attributed(const Value& value, std::size_t message, const Budget& budget) {
  if (const List* list = value.list()) {
    std::vector<Value> items;
    for (const Value& item : list->items) items.push_back(attributed(item, message, budget));
    return Value::list(std::move(items), budget, list->kind);
  }
  if (const Mapping* mapping = value.mapping()) {
    std::vector<std::pair<std::string, Value>> items;
    for (const auto& [key, item] : mapping->items) items.emplace_back(key, attributed(item, message, budget));
    return Value::mapping(std::move(items), budget);
  }
  if (value.is_none()) return value;
  return value.with({{0, value.text() != nullptr ? value.text()->size() : 0, message}});
}

Provenance merged_provenance(const Value& value, std::size_t size, Budget& budget) {
  std::set<std::size_t> messages;
  collect_messages(value, messages, budget);
  Provenance all;
  for (const std::size_t message : messages) all.push_back({0, size, message});
  return all;
}

Provenance provenance_of(const Value& value, const std::string& text, Budget& budget) {
  budget.spend(sizeof(SourceRange) * value.provenance().size());
  return value.text() != nullptr ? value.provenance() : merged_provenance(value, text.size(), budget);
}

Value derived(Value result, const Value& given, std::span<const Value> arguments, Budget& budget) {
  if (result.text() == nullptr) return result;
  const std::size_t size = result.text()->size();
  if (given.text() != nullptr && !given.provenance().empty()) {
    budget.spend(given.text()->size() + sizeof(SourceRange) * given.provenance().size());
    return result.with(derived_provenance(*given.text(), given.provenance(), *result.text()));
  }
  if (!result.provenance().empty()) return result;
  Provenance whole = merged_provenance(given, size, budget);
  for (std::size_t i = 0; whole.empty() && i < arguments.size(); ++i)
    whole = merged_provenance(arguments[i], size, budget);
  return result.with(std::move(whole));
}

Value joined(Value result, const Value& list, const Value& between, Budget& budget) {
  const std::size_t gap = text_of(between, budget).size();
  Provenance sources;
  std::size_t size = 0;
  for (const Value& item : list.list()->items) {
    const std::string text = text_of(item, budget);
    if (&item != &list.list()->items.front()) size += gap;
    append(sources, provenance_of(item, text, budget), size);
    size += text.size();
  }
  // The offsets in escaped texts are unknown.
  if (result.text() == nullptr || size != result.text()->size())
    return derived(std::move(result), list, {}, budget);
  return result.with(std::move(sources));
}

Value added(Value result, const Value& left, const Value& right, Budget& budget) {
  const bool exact = left.text() != nullptr && right.text() != nullptr && result.text() != nullptr &&
                     left.text()->size() + right.text()->size() == result.text()->size();
  if (!exact) return derived(std::move(result), left, std::span(&right, 1), budget);
  Provenance sources = provenance_of(left, *left.text(), budget);
  append(sources, provenance_of(right, *right.text(), budget), left.text()->size());
  return result.with(std::move(sources));
}

}  // namespace colonnade::chat_template
