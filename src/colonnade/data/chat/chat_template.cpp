// See chat_template.h.
#include "colonnade/data/chat/chat_template.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <unordered_map>

#include "colonnade/data/text_reader.h"

namespace colonnade::data::chat {
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
      std::unordered_map<std::string_view, std::size_t> places;
      for (const auto& [key, value] : object) {
        const auto [place, is_new] = places.try_emplace(key, items.size());
        if (is_new) items.emplace_back(key, Value());
        items[place->second].second = value_of(value, budget);
      }
      return Value::mapping(std::move(items), budget);
    }
    default:
      break;
  }
  throw DataError(fmt::format("integers must fit 64 bits; got {}; write it as text", simdjson::minify(json)));
}

/// A message without the members that are null, and with its reasoning under the names that templates read.
Value as_transformers_sees(const Value& message, const Budget& budget) {
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

[[noreturn]] void bad(const std::string& rule, const std::string& got) {
  throw DataError(fmt::format("{}; got {}; mend the line", rule, got));
}

/// The generation marks of a template, wherever they are.
bool has_marks(const Body& body) {
  return std::ranges::any_of(body, [](const auto& node) {
    return node->what == What::kGeneration || std::ranges::any_of(node->bodies, has_marks);
  });
}

bool is_cut(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80;
}

std::size_t common_begin(std::string_view a, std::string_view b) {
  std::size_t size = 0;
  while (size < a.size() && size < b.size() && a[size] == b[size]) ++size;
  while (size > 0 && (is_cut(a, size) || is_cut(b, size))) --size;
  return size;
}

/// Bytes at the begin of `written` that `asking` ends with, or goes on with behind them. `parts`: where
/// `asking` parts from the text that does not ask; what comes instead of a prompt there, an end of text, may
/// begin alike.
std::size_t header_size(std::string_view asking, std::size_t parts, std::string_view written) {
  constexpr std::size_t kLongestAlike = 64;
  std::size_t best = 0;
  for (std::size_t from = parts - std::min(parts, kLongestAlike); from <= parts; ++from)
    if (const std::size_t size = common_begin(asking.substr(from), written); from + size > parts)
      best = std::max(best, size);
  return best;
}

/// The conversation with its first `count` messages alone.
Conversation first_messages(const Conversation& conversation, std::size_t count) {
  const Budget budget("the conversation");
  const std::vector<Value>& all = conversation.messages.list()->items;
  const auto end = static_cast<std::ptrdiff_t>(count);
  return {Value::list({all.begin(), all.begin() + end}, budget),
          {conversation.roles.begin(), conversation.roles.begin() + end},
          conversation.others};
}

/// The conversation with other words in message `at`; nothing where its content is not a string.
std::optional<Conversation> with_other_words(const Conversation& conversation, std::size_t at) {
  const Budget budget("the conversation");
  std::vector<Value> all = conversation.messages.list()->items;
  Items items = all[at].mapping()->items;
  const auto content = std::ranges::find(items, "content", &Items::value_type::first);
  if (content == items.end() || content->second.text() == nullptr) return std::nullopt;
  content->second = Value::text("\xEE\x80\x80");  // U+E000, which no text begins with
  all[at] = Value::mapping(std::move(items), budget);
  return Conversation{Value::list(std::move(all), budget), conversation.roles, conversation.others};
}

/// Bytes of the first of these that `written` begins with; 0: none.
std::size_t known_header(const std::set<std::string, std::greater<>>& headers, std::string_view written) {
  const auto found =
      std::ranges::find_if(headers, [&](const std::string& header) { return written.starts_with(header); });
  return found == headers.end() ? 0 : found->size();
}

void read_messages(const Element& messages, const Budget& budget, Conversation& conversation) {
  simdjson::dom::array list;
  if (messages.get(list) != simdjson::SUCCESS)
    bad("'messages' must be a list", simdjson::minify(messages).substr(0, 60));
  std::vector<Value> all;
  for (const Element each : list) {
    const std::string where =
        fmt::format("message {} must be an object with a string 'role'", all.size() + 1);
    const Value message = each.is_object() ? value_of(each, budget) : Value();
    const Value* role = each.is_object() ? message.mapping()->find("role") : nullptr;
    if (role == nullptr || role->text() == nullptr)
      bad(where, std::string(simdjson::minify(each)).substr(0, 60));
    conversation.roles.push_back(*role->text());
    all.push_back(as_transformers_sees(message, budget));
  }
  if (all.empty()) bad("'messages' must hold at least one message", "none");
  conversation.messages = Value::list(std::move(all), budget);
}

/// chat_template_kwargs
void read_further(const Element& further, const Budget& budget, Conversation& conversation) {
  if (!further.is_object()) bad("'chat_template_kwargs' must be an object", "another value");
  const Value given = value_of(further, budget);
  for (const auto& [key, value] : given.mapping()->items) {
    if (key == "messages" || key == "add_generation_prompt")
      bad("'chat_template_kwargs' must not name what a line or a verb gives", fmt::format("'{}'", key));
    conversation.others.insert_or_assign(key, value);
  }
}

}  // namespace

Conversation read_conversation(std::string_view text) {
  const Budget budget("the conversation");
  refuse_byte_order_mark(text, "{");
  simdjson::dom::parser parser;
  Element line;
  auto error = parser.allocate(text.size(), 64);
  if (!error) error = parser.parse(text.data(), text.size()).get(line);
  if (error)
    bad("a line must be JSON", fmt::format("'{}' ({})", text.substr(0, 40), simdjson::error_message(error)));
  Conversation conversation;
  simdjson::dom::object object;
  if (line.get(object) != simdjson::SUCCESS) bad("a line must be an object with 'messages'", "another value");
  std::map<std::string_view, Element> members;  // of equal keys the last, as in Python
  for (const auto& [key, value] : object) members[key] = value;
  if (!members.contains("messages")) bad("a line must have 'messages'", "none");
  read_messages(members["messages"], budget, conversation);
  for (const char* key : {"tools", "documents"}) {
    const bool there = members.contains(key) && !members[key].is_null();
    if (there && !members[key].is_array()) bad(fmt::format("'{}' must be a list", key), "another value");
    conversation.others.insert_or_assign(key, there ? value_of(members[key], budget) : Value::none());
  }
  if (members.contains("chat_template_kwargs") && !members["chat_template_kwargs"].is_null())
    read_further(members["chat_template_kwargs"], budget, conversation);
  return conversation;
}

ChatTemplate::ChatTemplate(std::string name, std::string_view source, Variables special)
    : name_(std::move(name)), source_(source), special_(std::move(special)) {
  Budget budget(name_);
  body_ = parse(source_, budget);
  marks_ = has_marks(body_);
}

Rendering ChatTemplate::render(const Conversation& conversation, bool add_generation_prompt) const {
  Budget budget(name_);
  Variables variables = special_;
  for (const auto& [key, value] : conversation.others) variables.insert_or_assign(key, value);
  variables.insert_or_assign("messages", conversation.messages);
  variables.insert_or_assign("add_generation_prompt", Value(add_generation_prompt));
  return chat::render(body_, std::move(variables), budget);
}

/// Where the text that asks for this answer ends, if it is the begin of the text. If not, it asks in a way
/// that the text does not keep: as by an open <think>, or because later messages decide how earlier ones are
/// written. Then the answer begins behind what the text that asks for one more answer has of its begin, and
/// not within what the message itself says.
std::size_t ChatTemplate::answer_begin(const Conversation& conversation, std::size_t message,
                                       std::string_view text, const Span& span,
                                       std::string_view asking) const {
  const auto rendered = [&](const Conversation& other, bool prompt) -> std::optional<Rendering> {
    try {
      return render(other, prompt);
    } catch (const DataError&) {  // templates refuse conversations that end elsewhere
      return std::nullopt;
    }
  };
  const auto asked = rendered(first_messages(conversation, message), true);
  if (asked && asked->text.size() >= span.begin && asked->text.size() <= span.end &&
      text.starts_with(asked->text))
    return asked->text.size();
  const std::string_view written = text.substr(span.begin, span.end - span.begin);
  const std::size_t header = header_size(asking, common_begin(asking, text), written);
  if (header == 0) return span.begin;
  const auto other = with_other_words(conversation, message);
  const auto others = other ? rendered(*other, false) : std::nullopt;
  if (!others) return span.begin + header;
  for (const auto& [number, place] : others->messages)
    if (number == message && place.begin == span.begin)
      return span.begin +
             std::min(header, common_begin(std::string_view(others->text).substr(place.begin), written));
  return span.begin + header;
}

/// Asking for an answer renders all messages before it. What stands in front of the first answers stands in
/// front of later ones too.
void ChatTemplate::find_answers(const Conversation& conversation, const Rendering& rendering,
                                Chat& chat) const {
  constexpr std::size_t kMostAsked = 64;
  const std::string asking = render(conversation, true).text;
  std::set<std::string, std::greater<>> headers;  // the longer one first, of two that begin alike
  std::size_t asked = 0;
  for (const auto& [message, span] : rendering.messages) {
    if (conversation.roles[message] != "assistant") continue;
    std::size_t begin = span.begin;
    if (asked++ < kMostAsked) {
      begin = answer_begin(conversation, message, chat.text, span, asking);
      headers.insert(chat.text.substr(span.begin, begin - span.begin));
    } else {
      begin += known_header(headers, std::string_view(chat.text).substr(span.begin, span.end - span.begin));
    }
    if (begin < span.end) chat.answers.push_back({begin, span.end});
  }
}

Chat ChatTemplate::chat(const Conversation& conversation) const {
  if (std::ranges::find(conversation.roles, "assistant") == conversation.roles.end())
    bad("a conversation must have a message of the role 'assistant'", "none");
  Rendering rendering = render(conversation, false);
  Chat chat{std::move(rendering.text), {}};
  if (marks_) {
    for (const Span& span : rendering.generation)
      if (span.begin < span.end) chat.answers.push_back(span);
  } else {
    find_answers(conversation, rendering, chat);
  }
  if (chat.answers.empty())
    throw DataError(fmt::format(
        "{}: the template must write an answer in a loop over messages, or between {{% generation %}} and {{% "
        "endgeneration %}}; got none; give another one by --chat-template",
        name_));
  return chat;
}

}  // namespace colonnade::data::chat
