// See answers.h.
#include "colonnade/chat_template/answers.h"

#include <algorithm>
#include <set>

namespace colonnade::chat_template {
namespace {

using Roles = std::vector<std::string>;
using Longest = std::set<std::string, std::greater<>>;  // of two that begin alike the longer one comes first

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::size_t kMostAsked = 64;  // answers of a conversation for which it is rendered again

/// Where a message of the assistant is in a text.
struct Turn {
  std::size_t message = 0;
  Span span;
  std::size_t first_source = 0, end_source = 0;  ///< [first, end) of the sources, all of this message
  bool by_loop = true;                           ///< `span` is an iteration; else the words alone
};

bool is_answer(const Roles& roles, std::size_t message) { return roles[message] == "assistant"; }

bool is_blank(std::string_view text) { return text.find_first_not_of(kBlanks) == std::string_view::npos; }

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

/// Bytes of the first of these that `text` begins with; 0: none.
std::size_t known_begin(const Longest& known, std::string_view text) {
  const auto found =
      std::ranges::find_if(known, [&](const std::string& each) { return text.starts_with(each); });
  return found == known.end() ? 0 : found->size();
}

/// Where a name in angle or square brackets ends that begins at `at`, blanks before it aside; none within
/// `text` and 64 bytes: npos.
std::size_t mark_end(std::string_view text, std::size_t at) {
  constexpr std::size_t kLongestMark = 64;
  const std::size_t begin = text.find_first_not_of(kBlanks, at);
  if (begin == std::string_view::npos || (text[begin] != '<' && text[begin] != '['))
    return std::string_view::npos;
  const std::string_view rest = text.substr(begin + 1, kLongestMark);
  const std::size_t end = rest.find_first_of(text[begin] == '<' ? "> \t\r\n<" : "] \t\r\n[");
  const bool closes =
      end != std::string_view::npos && end > 0 && rest[end] == (text[begin] == '<' ? '>' : ']');
  return closes ? begin + end + 2 : std::string_view::npos;
}

/// Size of `text` without a mark at its end that does not close: `<th` of `<think>` may be another mark.
std::size_t before_open_mark(std::string_view text) {
  const std::size_t open = text.find_last_of("<[");
  const bool closes = open == std::string_view::npos ||
                      text.find(text[open] == '<' ? '>' : ']', open) != std::string_view::npos;
  return closes ? text.size() : open;
}

/// Finds the turns of the assistant in a text.
class Turns {
 public:
  Turns(const Roles& roles, const Rendering& rendering)
      : roles_(roles), rendering_(rendering), unfound_(roles.size()) {
    for (const SourceRange& source : rendering.sources) ++unfound_[source.message];
  }

  std::vector<Turn> find() {
    by_loops();
    by_words();
    std::ranges::sort(turns_, {}, [](const Turn& turn) { return turn.span.begin; });
    return std::move(turns_);
  }

 private:
  void by_loops() {
    std::size_t covered = 0;
    const auto& all = rendering_.iterations;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Iteration& each = all[i];
      if (each.span.begin == each.span.end || each.span.begin < covered) continue;
      const auto message = message_at(i);
      const bool other = each.message && !is_answer(roles_, *each.message) && !has_answer(each);
      if (message || other) covered = each.span.end;
      if (!message) continue;
      turns_.push_back({*message, each.span, each.first_source, each.end_source, true});
      unfound_[*message] = 0;
    }
  }

  [[nodiscard]] bool has_answer(const Iteration& iteration) const {
    for (std::size_t i = iteration.first_source; i < iteration.end_source; ++i)
      if (is_answer(roles_, rendering_.sources[i].message)) return true;
    return false;
  }

  /// The message of the assistant that iteration `i` writes, and no other one.
  [[nodiscard]] std::optional<std::size_t> message_at(std::size_t i) const {
    const Iteration& each = rendering_.iterations[i];
    const std::size_t count = each.end_source - each.first_source;
    const auto message =
        count > 0 ? std::optional(rendering_.sources[each.first_source].message) : each.message;
    if (!message || !is_answer(roles_, *message) || (each.message && each.message != message))
      return std::nullopt;
    for (std::size_t at = each.first_source; at < each.end_source; ++at)
      if (rendering_.sources[at].message != *message) return std::nullopt;
    // A loop by index: it must have all the words, and no loop over messages in it.
    if (!each.message && (count != unfound_[*message] || has_inner(i, *message))) return std::nullopt;
    return message;
  }

  [[nodiscard]] bool has_inner(std::size_t i, std::size_t message) const {
    const auto& all = rendering_.iterations;
    for (std::size_t inner = i + 1; inner < all.size() && all[inner].span.begin < all[i].span.end; ++inner)
      if (all[inner].message == message) return true;
    return false;
  }

  /// Of messages that no loop writes alone.
  void by_words() {
    const Provenance& sources = rendering_.sources;
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const std::size_t message = sources[i].message;
      if (unfound_[message] == 0 || !is_answer(roles_, message)) continue;
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
            "the chat template must write the answers apart from other messages; got message {} mixed with "
            "another one; enclose answers by {{% generation %}} and {{% endgeneration %}}",
            message + 1));
      turns_.push_back(turn);
    }
  }

  const Roles& roles_;
  const Rendering& rendering_;
  std::vector<std::size_t> unfound_;  // sources of each message that no turn has
  std::vector<Turn> turns_;
};

class AnswerFinder {
 public:
  AnswerFinder(const Conversation& conversation, Rendering rendering, const RenderChat& render)
      : conversation_(conversation), rendering_(std::move(rendering)), render_(render) {}

  Chat find() {
    std::vector<Turn> turns = Turns(conversation_.roles, rendering_).find();
    std::vector<Span> answers;
    for (const Turn& turn : turns) {
      answers.push_back(turn.by_loop ? in_loop(turn) : around_words(turn));
      ++asked_;
    }
    Chat chat;
    for (std::size_t i = 0; i < turns.size(); ++i) {
      const std::size_t next = i + 1 < turns.size() ? answers[i + 1].begin : text().size();
      const bool ended = end(turns[i], std::min(next, word_limit(turns[i])), answers[i]);
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

  /// Where the words of messages behind this turn begin.
  [[nodiscard]] std::size_t word_limit(const Turn& turn) const {
    const Provenance& sources = rendering_.sources;
    return turn.end_source < sources.size() ? sources[turn.end_source].begin : text().size();
  }
  [[nodiscard]] std::size_t first_word(const Turn& turn) const {
    return turn.first_source < turn.end_source ? rendering_.sources[turn.first_source].begin : turn.span.end;
  }
  [[nodiscard]] std::size_t last_word(const Turn& turn, std::size_t otherwise) const {
    for (std::size_t i = turn.first_source; i < turn.end_source; ++i)
      otherwise = std::max(otherwise, rendering_.sources[i].end);
    return otherwise;
  }

  /// Templates refuse conversations that end elsewhere.
  [[nodiscard]] std::optional<Rendering> rendered(const Conversation& other, bool prompt) const {
    try {
      return render_(other, prompt);
    } catch (const DataError&) {
      return std::nullopt;
    }
  }

  /// Size of the text of the first `count` messages, if it is the begin of the whole text.
  [[nodiscard]] std::optional<std::size_t> prefix(std::size_t count, bool prompt) const {
    const Budget budget("the conversation");
    const std::vector<Value>& all = conversation_.messages.list()->items;
    const auto end = static_cast<std::ptrdiff_t>(count);
    const auto found = rendered({Value::list({all.begin(), all.begin() + end}, budget),
                                 {conversation_.roles.begin(), conversation_.roles.begin() + end},
                                 conversation_.others},
                                prompt);
    return found && text().starts_with(found->text) ? std::optional(found->text.size()) : std::nullopt;
  }

  /// What stands in front of the first answers stands in front of later ones too.
  Span in_loop(const Turn& turn) {
    Span answer = turn.span;
    if (asked_ < kMostAsked) {
      answer.begin = begin_in_loop(turn);
      leads_.insert(std::string(text(turn.span.begin, answer.begin)));
    } else {
      answer.begin += known_begin(leads_, text(answer.begin, answer.end));
    }
    return answer;
  }

  /// Where the text that asks for this answer ends, if it is the begin of the text. Without messages a
  /// template may write the same whether it asks or not.
  [[nodiscard]] std::optional<std::size_t> asked_end(const Turn& turn) const {
    const auto asked = prefix(turn.message, true);
    return turn.message == 0 && asked == prefix(0, false) ? std::nullopt : asked;
  }

  /// The text that asks for one more answer.
  const std::string& asking() {
    if (!asking_) {
      asking_ = render_(conversation_, true).text;
      parts_ = common_begin(*asking_, text());
    }
    return *asking_;
  }

  /// Where what asks for one more answer ends in [begin, end), if all of it is there.
  std::optional<std::size_t> asked_within(std::size_t begin, std::size_t end) {
    const std::string_view asks = std::string_view(asking()).substr(parts_);
    const std::size_t at = asks.empty() ? std::string_view::npos : text(begin, end).rfind(asks);
    return at == std::string_view::npos ? std::nullopt : std::optional(begin + at + asks.size());
  }

  /// Where the text that asks for this answer ends, if it is the begin of the text. If not, it asks in a way
  /// that the text does not keep: as by an open <think>, or because other messages decide how these are
  /// written, as before the first one a system prompt of the template's own. Then the answer begins behind
  /// the text that asks for one more answer, or the part of it with which the turn begins, and not within the
  /// message's own words.
  std::size_t begin_in_loop(const Turn& turn) {
    const auto asked = asked_end(turn);
    if (asked && *asked >= turn.span.begin && *asked <= turn.span.end) return *asked;
    if (const auto within = asked_within(turn.span.begin, first_word(turn))) return *within;
    const std::size_t header = header_size(asking(), parts_, text(turn.span.begin, turn.span.end));
    return std::min(turn.span.begin + before_open_mark(text(turn.span.begin, turn.span.begin + header)),
                    first_word(turn));
  }

  /// From the end of the text that asks for it to the end of the conversation up to it.
  Span around_words(const Turn& turn) {
    const std::size_t before = turn.first_source > 0 ? rendering_.sources[turn.first_source - 1].end : 0;
    Span answer = turn.span;
    if (asked_ >= kMostAsked) {
      for (const std::string& lead : leads_)
        if (text(before, turn.span.begin).ends_with(lead))
          answer.begin = std::min(answer.begin, turn.span.begin - lead.size());
      answer.end += known_begin(tails_, text(turn.span.end, word_limit(turn)));
      return answer;
    }
    const auto asked = asked_end(turn), ended = prefix(turn.message + 1, false);
    if (asked && *asked >= before && *asked <= turn.span.end)
      answer.begin = *asked;
    else if (turn.message == 0)
      answer.begin = asked_within(before, turn.span.begin).value_or(turn.span.begin);
    if (ended && *ended >= turn.span.end && *ended <= word_limit(turn)) answer.end = *ended;
    if (answer.begin < turn.span.begin) leads_.insert(std::string(text(answer.begin, turn.span.begin)));
    tails_.insert(std::string(text(turn.span.end, answer.end)));
    return answer;
  }

  /// Moves the end of an answer that nothing ends behind the mark that does. False: no mark does.
  bool end(const Turn& turn, std::size_t limit, Span& answer) {
    const std::string_view tail = text(std::min(last_word(turn, answer.begin), answer.end), answer.end);
    if (!is_blank(tail) && !(has_more_than_words(turn.message) && leaves_open(turn))) return true;
    const std::size_t mark = mark_end(text().substr(0, std::max(limit, answer.end)), answer.end);
    if (mark == std::string_view::npos) return false;
    answer.end = mark;
    return true;
  }

  /// Such as tool calls, which the template encloses in marks that end no turn.
  [[nodiscard]] bool has_more_than_words(std::size_t message) const {
    return conversation_.messages.list()->items[message].mapping()->find("tool_calls") != nullptr;
  }

  /// Whether nothing follows words in the place of this message.
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
    for (const Turn& each : Turns(other.roles, *found).find())
      if (each.message == turn.message && each.by_loop && each.first_source < each.end_source)
        leaves_open_ = is_blank(std::string_view(found->text)
                                    .substr(0, each.span.end)
                                    .substr(found->sources[each.end_source - 1].end));
    return *leaves_open_;
  }

  const Conversation& conversation_;
  Rendering rendering_;
  const RenderChat& render_;
  std::optional<std::string> asking_;
  std::size_t parts_ = 0;  ///< where asking_ parts from the text
  std::optional<bool> leaves_open_;
  Longest leads_, tails_;
  std::size_t asked_ = 0;
};

}  // namespace

Chat marked_answers(const Conversation& conversation, Rendering rendering) {
  Chat chat;
  std::optional<std::size_t> unended;  // whose words the last answer has, if nothing ends it
  for (const Span& span : rendering.generation) {
    if (span.begin >= span.end) continue;
    chat.answers.push_back(span);
    std::optional<SourceRange> words;
    for (auto source = std::ranges::lower_bound(rendering.sources, span.begin, {}, &SourceRange::begin);
         source != rendering.sources.end() && source->end <= span.end; ++source)
      if (is_answer(conversation.roles, source->message)) words = *source;
    if (!words) continue;
    if (unended == words->message) --chat.unended;  // it goes on here
    const bool without = is_blank(std::string_view(rendering.text).substr(0, span.end).substr(words->end));
    unended = without ? std::optional(words->message) : std::nullopt;
    chat.unended += without ? 1 : 0;
  }
  chat.text = std::move(rendering.text);
  return chat;
}

Chat find_answers(const Conversation& conversation, Rendering rendering, const RenderChat& render) {
  return AnswerFinder(conversation, std::move(rendering), render).find();
}

}  // namespace colonnade::chat_template
