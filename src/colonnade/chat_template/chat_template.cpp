// See chat_template.h.
#include "colonnade/chat_template/chat_template.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "colonnade/chat_template/answers.h"
#include "colonnade/corpus/text_reader.h"

namespace colonnade::chat_template {
namespace {

using Element = simdjson::dom::element;
using Items = std::vector<std::pair<std::string, Value>>;

void put(Items& items, std::string_view key, Value value) {
  const auto old = std::ranges::find(items, key, &Items::value_type::first);
  if (old != items.end()) {
    old->second = std::move(value);
  } else {
    items.emplace_back(key, std::move(value));
  }
}

Value value_of(Element json, const Budget& budget) {
  switch (json.type()) {
    case simdjson::dom::element_type::NULL_VALUE:
      return Value::none();
    case simdjson::dom::element_type::BOOL:
      return {bool(json.get_bool().value_unsafe())};
    case simdjson::dom::element_type::INT64:
      return Value::integer(json.get_int64().value_unsafe());
    case simdjson::dom::element_type::DOUBLE:
      return {double(json.get_double().value_unsafe())};
    case simdjson::dom::element_type::STRING:
      return Value::text(std::string(json.get_string().value_unsafe()));
    case simdjson::dom::element_type::ARRAY: {
      std::vector<Value> items;
      simdjson::dom::array list;
      if (json.get(list) != simdjson::SUCCESS) break;
      for (const Element item : list) items.push_back(value_of(item, budget));
      return Value::list(std::move(items), budget);
    }
    case simdjson::dom::element_type::OBJECT: {
      Items items;
      simdjson::dom::object object;
      if (json.get(object) != simdjson::SUCCESS) break;
      std::unordered_map<std::string_view, std::size_t> indices;
      for (const auto& [key, value] : object) {
        const auto [index, is_new] = indices.try_emplace(key, items.size());
        if (is_new) items.emplace_back(key, Value());
        items[index->second].second = value_of(value, budget);
      }
      return Value::mapping(std::move(items), budget);
    }
    default:
      break;
  }
  throw DataError(
      fmt::format("integers must fit 64 bits; got {}; write it as a string", simdjson::minify(json)));
}

/// A message without null members, and with its reasoning under the names that templates read.
Value as_in_transformers(const Value& message, const Budget& budget) {
  Items items;
  for (const auto& [name, value] : message.mapping()->items)
    if (!value.is_none()) items.emplace_back(name, value);
  for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
    const Value* found = message.mapping()->find(key);
    if (found == nullptr || found->is_none()) continue;
    const Value reasoning = *found;
    if (message.mapping()->find("thinking") == nullptr || message.mapping()->find("thinking")->is_none())
      items.insert(items.begin(), {"thinking", reasoning});
    put(items, "reasoning_content", reasoning);
    break;
  }
  return Value::mapping(std::move(items), budget);
}

[[noreturn]] void reject(const std::string& rule, const std::string& got) {
  throw DataError(fmt::format("{}; got {}; fix the line", rule, got));
}

/// Whether a template has {% generation %}, at any depth.
bool has_generation(const Body& body) {
  return std::ranges::any_of(body, [](const auto& node) {
    return node->kind == NodeKind::kGeneration || std::ranges::any_of(node->bodies, has_generation);
  });
}

void read_messages(const Element& messages, const Budget& budget, Conversation& conversation) {
  simdjson::dom::array list;
  if (messages.get(list) != simdjson::SUCCESS)
    reject("'messages' must be a list", simdjson::minify(messages).substr(0, 60));
  std::vector<Value> all;
  for (const Element each : list) {
    const std::string where =
        fmt::format("message {} must be an object with a string 'role'", all.size() + 1);
    const Value message = each.is_object() ? value_of(each, budget) : Value();
    const Value* role = each.is_object() ? message.mapping()->find("role") : nullptr;
    if (role == nullptr || role->text() == nullptr)
      reject(where, std::string(simdjson::minify(each)).substr(0, 60));
    conversation.roles.push_back(*role->text());
    all.push_back(as_in_transformers(message, budget));
  }
  if (all.empty()) reject("'messages' must hold at least one message", "none");
  conversation.messages = Value::list(std::move(all), budget);
}

/// Adds the members of chat_template_kwargs to the variables.
void read_kwargs(const Element& kwargs, const Budget& budget, Conversation& conversation) {
  if (!kwargs.is_object()) reject("'chat_template_kwargs' must be an object", "another value");
  const Value given = value_of(kwargs, budget);
  for (const auto& [key, value] : given.mapping()->items) {
    if (key == "messages" || key == "add_generation_prompt")
      reject("'chat_template_kwargs' must not set a variable that is given elsewhere",
             fmt::format("'{}'", key));
    conversation.variables.insert_or_assign(key, value);
  }
}

}  // namespace

Conversation read_conversation(std::string_view text) {
  const Budget budget("the conversation");
  corpus::reject_byte_order_mark(text, "{");
  simdjson::dom::parser parser;
  Element line;
  auto error = parser.allocate(text.size(), 64);
  if (!error) error = parser.parse(text.data(), text.size()).get(line);
  if (error)
    reject("a line must be JSON",
           fmt::format("'{}' ({})", text.substr(0, 40), simdjson::error_message(error)));
  Conversation conversation;
  simdjson::dom::object object;
  if (line.get(object) != simdjson::SUCCESS)
    reject("a line must be an object with 'messages'", "another value");
  std::map<std::string_view, Element> members;  // the last duplicate key wins, as in Python
  for (const auto& [key, value] : object) members[key] = value;
  if (!members.contains("messages")) reject("a line must have 'messages'", "none");
  read_messages(members["messages"], budget, conversation);
  for (const char* key : {"tools", "documents"}) {
    const bool there = members.contains(key) && !members[key].is_null();
    if (there && !members[key].is_array()) reject(fmt::format("'{}' must be a list", key), "another value");
    conversation.variables.insert_or_assign(key, there ? value_of(members[key], budget) : Value::none());
  }
  if (members.contains("chat_template_kwargs") && !members["chat_template_kwargs"].is_null())
    read_kwargs(members["chat_template_kwargs"], budget, conversation);
  return conversation;
}

ChatTemplate::ChatTemplate(std::string name, std::string_view source, Variables special)
    : name_(std::move(name)), source_(source), special_(std::move(special)) {
  Budget budget(name_);
  body_ = parse(source_, budget);
  has_generation_ = has_generation(body_);
}

Rendering ChatTemplate::render(const Conversation& conversation, bool add_generation_prompt) const {
  Budget budget(name_);
  Variables variables = special_;
  for (const auto& [key, value] : conversation.variables) variables.insert_or_assign(key, value);
  variables.insert_or_assign("messages", conversation.messages);
  variables.insert_or_assign("add_generation_prompt", Value(add_generation_prompt));
  return chat_template::render(body_, std::move(variables), budget);
}

Chat ChatTemplate::chat(const Conversation& conversation) const {
  if (std::ranges::find(conversation.roles, "assistant") == conversation.roles.end())
    reject("a conversation must have a message with the role 'assistant'", "none");
  Rendering rendering = render(conversation, false);
  const RenderChat rerender = [this](const Conversation& other, bool prompt) {
    return render(other, prompt);
  };
  Chat chat = has_generation_ ? marked_answers(conversation, std::move(rendering))
                              : find_answers(conversation, std::move(rendering), rerender);
  if (chat.answers.empty())
    throw DataError(fmt::format(
        "{}: the template must write an answer: words of an assistant message, or text between {{% "
        "generation %}} and {{% endgeneration %}}; got none; give another one by --chat-template",
        name_));
  return chat;
}

}  // namespace colonnade::chat_template
