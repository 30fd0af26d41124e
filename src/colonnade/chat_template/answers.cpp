// See answers.h.
#include "colonnade/chat_template/answers.h"

#include <algorithm>
#include <set>

namespace colonnade::chat_template {
namespace {

using Roles = std::vector<std::string>;
using LongestFirst = std::set<std::string, std::greater<>>;  // a prefix follows the longer string

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::size_t kMaxRendered = 64;  // answers of a conversation that are located by more renderings

/// The location of an assistant message in the text.
struct Turn {
  std::size_t message = 0;
  Span span;
  std::size_t first_source = 0, end_source = 0;  ///< [first, end) of its sources
  bool by_loop = true;  ///< whether `span` is a loop iteration; else it is the words alone
};

bool is_assistant(const Roles& roles, std::size_t message) { return roles[message] == "assistant"; }

bool is_blank(std::string_view text) { return text.find_first_not_of(kBlanks) == std::string_view::npos; }

/// Whether `at` is inside a character.
bool splits_character(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80;
}

/// Bytes of the longest common prefix, in whole characters.
std::size_t common_prefix(std::string_view a, std::string_view b) {
  std::size_t size = 0;
  while (size < a.size() && size < b.size() && a[size] == b[size]) ++size;
  while (size > 0 && (splits_character(a, size) || splits_character(b, size))) --size;
  return size;
}

/// Bytes of the longest prefix of `written` that occurs in `prompted`, the text with a generation prompt, and
/// extends beyond `divergence`, where it starts to differ from the text without one. The occurrence may start
/// up to 64 bytes before, because an end of text in place of the prompt may start like it.
std::size_t header_size(std::string_view prompted, std::size_t divergence, std::string_view written) {
  constexpr std::size_t kMaxOverlap = 64;
  std::size_t best = 0;
  for (std::size_t from = divergence - std::min(divergence, kMaxOverlap); from <= divergence; ++from)
    if (const std::size_t size = common_prefix(prompted.substr(from), written); from + size > divergence)
      best = std::max(best, size);
  return best;
}

/// Bytes of the longest known prefix of `text`; 0 if there is none.
std::size_t known_prefix(const LongestFirst& known, std::string_view text) {
  const auto found =
      std::ranges::find_if(known, [&](const std::string& each) { return text.starts_with(each); });
  return found == known.end() ? 0 : found->size();
}

/// The end of a name in angle or square brackets at `at`, after blanks; npos if there is none of up to 64
/// bytes.
std::size_t mark_end(std::string_view text, std::size_t at) {
  constexpr std::size_t kMaxMark = 64;
  const std::size_t begin = text.find_first_not_of(kBlanks, at);
  if (begin == std::string_view::npos || (text[begin] != '<' && text[begin] != '['))
    return std::string_view::npos;
  const std::string_view rest = text.substr(begin + 1, kMaxMark);
  const std::size_t end = rest.find_first_of(text[begin] == '<' ? "> \t\r\n<" : "] \t\r\n[");
  const bool closes =
      end != std::string_view::npos && end > 0 && rest[end] == (text[begin] == '<' ? '>' : ']');
  return closes ? begin + end + 2 : std::string_view::npos;
}

/// Size of `text` without a trailing unclosed mark: `<th` may start `<think>` or another mark.
std::size_t size_without_open_mark(std::string_view text) {
  const std::size_t open = text.find_last_of("<[");
  const bool closes = open == std::string_view::npos ||
                      text.find(text[open] == '<' ? '>' : ']', open) != std::string_view::npos;
  return closes ? text.size() : open;
}

/// Finds the assistant turns in a rendering.
class TurnFinder {
 public:
  TurnFinder(const Roles& roles, const Rendering& rendering)
      : roles_(roles), rendering_(rendering), unfound_(roles.size()) {
    for (const SourceRange& source : rendering.sources) ++unfound_[source.message];
  }

  std::vector<Turn> find() {
    find_in_loops();
    find_by_words();
    std::ranges::sort(turns_, {}, [](const Turn& turn) { return turn.span.begin; });
    return std::move(turns_);
  }

 private:
  void find_in_loops() {
    std::size_t covered = 0;
    const auto& all = rendering_.iterations;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Iteration& each = all[i];
      if (each.span.begin == each.span.end || each.span.begin < covered) continue;
      const auto message = message_at(i);
      const bool other = each.message && !is_assistant(roles_, *each.message) && !writes_assistant(each);
      if (message || other) covered = each.span.end;
      if (!message) continue;
      turns_.push_back({*message, each.span, each.first_source, each.end_source, true});
      unfound_[*message] = 0;
    }
  }

  [[nodiscard]] bool writes_assistant(const Iteration& iteration) const {
    for (std::size_t i = iteration.first_source; i < iteration.end_source; ++i)
      if (is_assistant(roles_, rendering_.sources[i].message)) return true;
    return false;
  }

  /// The assistant message that iteration `i` writes; nullopt if it writes none or another one too.
  [[nodiscard]] std::optional<std::size_t> message_at(std::size_t i) const {
    const Iteration& each = rendering_.iterations[i];
    const std::size_t count = each.end_source - each.first_source;
    const auto message =
        count > 0 ? std::optional(rendering_.sources[each.first_source].message) : each.message;
    if (!message || !is_assistant(roles_, *message) || (each.message && each.message != message))
      return std::nullopt;
    for (std::size_t at = each.first_source; at < each.end_source; ++at)
      if (rendering_.sources[at].message != *message) return std::nullopt;
    // A loop by index: it must have all words of the message, and contain no loop over messages.
    if (!each.message && (count != unfound_[*message] || has_inner_loop(i, *message))) return std::nullopt;
    return message;
  }

  [[nodiscard]] bool has_inner_loop(std::size_t i, std::size_t message) const {
    const auto& all = rendering_.iterations;
    for (std::size_t inner = i + 1; inner < all.size() && all[inner].span.begin < all[i].span.end; ++inner)
      if (all[inner].message == message) return true;
    return false;
  }

  /// Adds the turns of messages that no loop iteration writes alone.
  void find_by_words() {
    const Provenance& sources = rendering_.sources;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const std::size_t message = sources[i].message;
      if (unfound_[message] == 0 || !is_assistant(roles_, message)) continue;
      const std::size_t end = i + unfound_[message];
      unfound_[message] = 0;
      Turn turn{message, {sources[i].begin, sources[i].end}, i, end, false};
      bool mixed = i > 0 && sources[i - 1].end > turn.span.begin;
      for (std::size_t at = i; at < end; ++at) {
        mixed = mixed || at >= sources.size() || sources[at].message != message;
        if (!mixed) turn.span.end = std::max(turn.span.end, sources[at].end);
      }
      mixed = mixed || (end < sources.size() && sources[end].begin < turn.span.end);
      if (mixed)
        throw DataError(fmt::format(
            "the chat template must write answers apart from other messages; got message {} mixed with "
            "another one; enclose answers by {{% generation %}} and {{% endgeneration %}}",
            message + 1));
      turns_.push_back(turn);
    }
  }

  const Roles& roles_;
  const Rendering& rendering_;
  std::vector<std::size_t> unfound_;  // by message: number of sources that no turn has yet
  std::vector<Turn> turns_;
};

class AnswerFinder {
 public:
  AnswerFinder(const Conversation& conversation, Rendering rendering, const RenderChat& render)
      : conversation_(conversation), rendering_(std::move(rendering)), render_(render) {}

  Chat find() {
    std::vector<Turn> turns = TurnFinder(conversation_.roles, rendering_).find();
    std::vector<Span> answers;
    for (const Turn& turn : turns) {
      answers.push_back(turn.by_loop ? in_loop(turn) : around_words(turn));
      ++num_answers_;
    }
    Chat chat;
    for (std::size_t i = 0; i < turns.size(); ++i) {
      const std::size_t next = i + 1 < turns.size() ? answers[i + 1].begin : text().size();
      const bool ended = extend_to_end(turns[i], std::min(next, next_words(turns[i])), answers[i]);
      if (answers[i].begin >= answers[i].end) continue;
      chat.answers.push_back(answers[i]);
      chat.unended += ended ? 0 : 1;
    }
    chat.text = std::move(rendering_.text);
    return chat;
  }

 private:
  [[nodiscard]] std::string_view text() const { return rendering_.text; }
  [[nodiscard]] std::string_view text(std::size_t begin, std::size_t end) const {
    return text().substr(begin, end - begin);
  }

  /// The start of the words of messages after this turn.
  [[nodiscard]] std::size_t next_words(const Turn& turn) const {
    const Provenance& sources = rendering_.sources;
    return turn.end_source < sources.size() ? sources[turn.end_source].begin : text().size();
  }
  [[nodiscard]] std::size_t words_begin(const Turn& turn) const {
    return turn.first_source < turn.end_source ? rendering_.sources[turn.first_source].begin : turn.span.end;
  }
  [[nodiscard]] std::size_t words_end(const Turn& turn, std::size_t fallback) const {
    for (std::size_t i = turn.first_source; i < turn.end_source; ++i)
      fallback = std::max(fallback, rendering_.sources[i].end);
    return fallback;
  }

  /// The rendering of another conversation; nullopt if the template rejects it.
  [[nodiscard]] std::optional<Rendering> rendered(const Conversation& other, bool prompt) const {
    try {
      return render_(other, prompt);
    } catch (const DataError&) {
      return std::nullopt;
    }
  }

  /// Size of the text of the first `count` messages, if it is a prefix of the whole text.
  [[nodiscard]] std::optional<std::size_t> prefix(std::size_t count, bool prompt) const {
    const Budget budget("the conversation");
    const std::vector<Value>& all = conversation_.messages.list()->items;
    const auto end = static_cast<std::ptrdiff_t>(count);
    const auto found = rendered({Value::list({all.begin(), all.begin() + end}, budget),
                                 {conversation_.roles.begin(), conversation_.roles.begin() + end},
                                 conversation_.variables},
                                prompt);
    return found && text().starts_with(found->text) ? std::optional(found->text.size()) : std::nullopt;
  }

  /// The answer of a turn in a loop. After kMaxRendered answers, the headers of earlier ones are matched.
  Span in_loop(const Turn& turn) {
    Span answer = turn.span;
    if (num_answers_ < kMaxRendered) {
      answer.begin = begin_in_loop(turn);
      headers_.insert(std::string(text(turn.span.begin, answer.begin)));
    } else {
      answer.begin += known_prefix(headers_, text(answer.begin, answer.end));
    }
    return answer;
  }

  /// The end of the generation prompt of the messages before this turn, if it is a prefix of the text.
  /// Without messages a template may ignore add_generation_prompt.
  [[nodiscard]] std::optional<std::size_t> prompt_end(const Turn& turn) const {
    const auto prompt = prefix(turn.message, true);
    return turn.message == 0 && prompt == prefix(0, false) ? std::nullopt : prompt;
  }

  /// The text of the whole conversation with a generation prompt.
  const std::string& prompted_text() {
    if (!prompted_text_) {
      prompted_text_ = render_(conversation_, true).text;
      divergence_ = common_prefix(*prompted_text_, text());
    }
    return *prompted_text_;
  }

  /// The end of the generation prompt in [begin, end), if the prompt occurs there.
  std::optional<std::size_t> prompt_end_within(std::size_t begin, std::size_t end) {
    const std::string_view prompt = std::string_view(prompted_text()).substr(divergence_);
    const std::size_t at = prompt.empty() ? std::string_view::npos : text(begin, end).rfind(prompt);
    return at == std::string_view::npos ? std::nullopt : std::optional(begin + at + prompt.size());
  }

  /// The end of the generation prompt before this turn, if it is a prefix of the text. It may not be one: the
  /// prompt may open a <think>, or other messages may change how these are written, such as the template's
  /// own system prompt before the first message. Then the answer starts after the generation prompt of the
  /// whole conversation, or after the part of it that starts the turn, but never inside the message's own
  /// words.
  std::size_t begin_in_loop(const Turn& turn) {
    const auto prompt = prompt_end(turn);
    if (prompt && *prompt >= turn.span.begin && *prompt <= turn.span.end) return *prompt;
    if (const auto within = prompt_end_within(turn.span.begin, words_begin(turn))) return *within;
    const std::size_t header =
        header_size(prompted_text(), divergence_, text(turn.span.begin, turn.span.end));
    return std::min(turn.span.begin + size_without_open_mark(text(turn.span.begin, turn.span.begin + header)),
                    words_begin(turn));
  }

  /// The answer from the end of its generation prompt to the end of the rendering up to its message.
  Span around_words(const Turn& turn) {
    const std::size_t before = turn.first_source > 0 ? rendering_.sources[turn.first_source - 1].end : 0;
    Span answer = turn.span;
    if (num_answers_ >= kMaxRendered) {
      for (const std::string& header : headers_)
        if (text(before, turn.span.begin).ends_with(header))
          answer.begin = std::min(answer.begin, turn.span.begin - header.size());
      answer.end += known_prefix(endings_, text(turn.span.end, next_words(turn)));
      return answer;
    }
    const auto prompt = prompt_end(turn), ended = prefix(turn.message + 1, false);
    if (prompt && *prompt >= before && *prompt <= turn.span.end)
      answer.begin = *prompt;
    else if (turn.message == 0)
      answer.begin = prompt_end_within(before, turn.span.begin).value_or(turn.span.begin);
    if (ended && *ended >= turn.span.end && *ended <= next_words(turn)) answer.end = *ended;
    if (answer.begin < turn.span.begin) headers_.insert(std::string(text(answer.begin, turn.span.begin)));
    endings_.insert(std::string(text(turn.span.end, answer.end)));
    return answer;
  }

  /// Extends an answer without an ending to the mark that follows it. Returns false if the answer has no
  /// ending.
  bool extend_to_end(const Turn& turn, std::size_t limit, Span& answer) {
    const std::string_view tail = text(std::min(words_end(turn, answer.begin), answer.end), answer.end);
    if (!is_blank(tail) && !(has_tool_calls(turn.message) && leaves_open(turn))) return true;
    const std::size_t mark = mark_end(text().substr(0, std::max(limit, answer.end)), answer.end);
    if (mark == std::string_view::npos) return false;
    answer.end = mark;
    return true;
  }

  /// Whether a message has tool calls, which the template encloses in marks that end no turn.
  [[nodiscard]] bool has_tool_calls(std::size_t message) const {
    return conversation_.messages.list()->items[message].mapping()->find("tool_calls") != nullptr;
  }

  /// Whether the template writes nothing after the words of a plain message in place of this one.
  bool leaves_open(const Turn& turn) {
    if (leaves_open_) return *leaves_open_;
    const Budget budget("the conversation");
    Conversation other = conversation_;
    std::vector<Value> messages = other.messages.list()->items;
    messages[turn.message] = Value::mapping(
        {{"role", Value::text("assistant")}, {"content", Value::text("\xEE\x80\x80")}}, budget);  // U+E000
    other.messages = Value::list(std::move(messages), budget);
    leaves_open_ = false;
    const auto found = rendered(other, false);
    if (!found) return false;
    for (const Turn& each : TurnFinder(other.roles, *found).find())
      if (each.message == turn.message && each.by_loop && each.first_source < each.end_source)
        leaves_open_ = is_blank(std::string_view(found->text)
                                    .substr(0, each.span.end)
                                    .substr(found->sources[each.end_source - 1].end));
    return *leaves_open_;
  }

  const Conversation& conversation_;
  Rendering rendering_;
  const RenderChat& render_;
  std::optional<std::string> prompted_text_;
  std::size_t divergence_ = 0;  ///< where prompted_text_ starts to differ from the text
  std::optional<bool> leaves_open_;
  LongestFirst headers_, endings_;
  std::size_t num_answers_ = 0;
};

}  // namespace

Chat marked_answers(const Conversation& conversation, Rendering rendering) {
  Chat chat;
  std::optional<std::size_t> unended;  // message of the last answer, if that has no ending
  for (const Span& span : rendering.generation) {
    if (span.begin >= span.end) continue;
    chat.answers.push_back(span);
    std::optional<SourceRange> words;
    for (auto source = std::ranges::lower_bound(rendering.sources, span.begin, {}, &SourceRange::begin);
         source != rendering.sources.end() && source->end <= span.end; ++source)
      if (is_assistant(conversation.roles, source->message)) words = *source;
    if (!words) continue;
    if (unended == words->message) --chat.unended;  // the answer continues here
    const bool open = is_blank(std::string_view(rendering.text).substr(0, span.end).substr(words->end));
    unended = open ? std::optional(words->message) : std::nullopt;
    chat.unended += open ? 1 : 0;
  }
  chat.text = std::move(rendering.text);
  return chat;
}

Chat find_answers(const Conversation& conversation, Rendering rendering, const RenderChat& render) {
  return AnswerFinder(conversation, std::move(rendering), render).find();
}

}  // namespace colonnade::chat_template
