// Expansion and checks of layout strings.
#include "colonnade/layout/layout_string.h"

#include <algorithm>
#include <charconv>

#include "colonnade/base/error.h"

namespace colonnade::layout {
namespace {

constexpr std::size_t kMaxLetters = 1'000'000;
constexpr std::string_view kFlag = "--pipeline-model-parallel-layout";

[[noreturn]] void refuse(std::string_view rule, std::string_view got, std::string_view remedy) {
  throw ConfigError(fmt::format("{}: {}; got '{}'; {}", kFlag, rule, got, remedy));
}

/// Reads `*n` at text[at]; leaves `at` behind it. Returns -1 when there is no `*`.
std::int64_t factor(std::string_view text, std::size_t& at) {
  if (at >= text.size() || text[at] != '*') return -1;
  std::int64_t n = -1;
  const auto [end, error] = std::from_chars(text.data() + at + 1, text.data() + text.size(), n);
  if (error != std::errc{} || n < 0 || n > static_cast<std::int64_t>(kMaxLetters)) {
    refuse("* needs a number of repetitions", text, "write t*3 or (tt|)*3");
  }
  at = static_cast<std::size_t>(end - text.data());
  return n;
}

void repeat(std::string& out, std::string_view part, std::int64_t times) {
  if (times > 0 &&
      part.size() > (kMaxLetters - std::min(out.size(), kMaxLetters)) / static_cast<std::size_t>(times)) {
    refuse(fmt::format("may describe at most {} letters", kMaxLetters), fmt::format("{}*{}", part, times),
           "check the repetitions");
  }
  for (std::int64_t i = 0; i < times; ++i) out += part;
}

std::string expand_groups(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == ')') refuse("a bracket closes that was not opened", text, "remove it or add '('");
    if (text[at] != '(') {
      out += text[at++];
      continue;
    }
    const std::size_t close = text.find(')', at);
    if (close == std::string_view::npos) refuse("a bracket is not closed", text, "add ')' and *n");
    const std::string_view inside = text.substr(at + 1, close - at - 1);
    if (inside.find('(') != std::string_view::npos)
      refuse("groups cannot lie in groups", text, "write the inner one out");
    at = close + 1;
    const std::int64_t times = factor(text, at);
    if (times < 0) refuse("a group needs a number of repetitions", text, "write (tt|)*3");
    repeat(out, inside, times);
  }
  return out;
}

std::string expand_letters(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view letter = text.substr(at, 1);
    if (letter == "*") refuse("* must follow a letter or a group", text, "write t*3");
    ++at;
    const std::int64_t times = factor(text, at);
    repeat(out, letter, times < 0 ? 1 : times);
  }
  return out;
}

void check_letters(const std::string& letters, std::string_view text, const LayoutCounts& counts) {
  for (const char c : letters) {
    if (std::string_view("EetmL|").find(c) == std::string_view::npos) {
      refuse(fmt::format("letters are E, e, t, m, L and |, not '{}'", c), text, "remove it");
    }
  }
  std::string blocks = letters;
  std::erase(blocks, '|');
  const auto embeddings = std::count(blocks.begin(), blocks.end(), 'E');
  const auto heads = std::count(blocks.begin(), blocks.end(), 'L');
  const auto layers = std::count(blocks.begin(), blocks.end(), 't');
  if (embeddings != 1)
    refuse(fmt::format("E must appear once and first, it appears {} times", embeddings), text,
           "begin with E");
  if (blocks.front() != 'E')
    refuse("E must appear once and first, before all other letters", text, "begin with E");
  if (heads != 1)
    refuse(fmt::format("L must appear once and last, it appears {} times", heads), text, "end with L");
  if (blocks.back() != 'L')
    refuse("L must appear once and last, behind all other letters", text, "end with L");
  if (letters.front() != 'E') refuse("E must lie in the first stage", text, "remove the | before it");
  if (letters.back() != 'L') refuse("L must lie in the last stage", text, "remove the | after it");
  const auto predictions = std::count(blocks.begin(), blocks.end(), 'm');
  if (predictions != counts.predictions) {
    refuse(fmt::format("m must appear once per further token, {} times for --mtp-num-layers {}", predictions,
                       counts.predictions),
           text, "add or remove m");
  }
  if (layers != counts.layers) {
    refuse(fmt::format("t must appear once per layer, {} times for --num-layers {}", layers, counts.layers),
           text, "add or remove t");
  }
  const auto encoder_layers = std::count(blocks.begin(), blocks.end(), 'e');
  if (encoder_layers != counts.encoder_layers) {
    refuse(fmt::format("e must appear once per layer of the encoder, {} times for {} of them", encoder_layers,
                       counts.encoder_layers),
           text, counts.encoder_layers == 0 ? "remove e" : "add or remove e");
  }
  if (encoder_layers > 0 && blocks.rfind('e') > blocks.find('t'))
    refuse("layers of the encoder, e, must come before those of the decoder, t", text, "move e to the front");
  if (predictions > 0 && blocks.find('m') < blocks.rfind('t'))
    refuse("m must lie behind all layers, t", text, "move m to the end, in front of L");
  if (letters.find(std::string(static_cast<std::size_t>(predictions), 'm')) == std::string::npos)
    refuse("all m must lie in one stage", text, "move them to one side of the |");
}

/// "", "t" or "t*4".
std::string letters(char letter, std::int64_t count) {
  return count < 1 ? "" : count == 1 ? std::string(1, letter) : fmt::format("{}*{}", letter, count);
}

/// Layers of each stage. `ends`: the first stage has room for one less, the last one for `ends` less.
std::vector<std::int64_t> even_counts(std::int64_t layers, std::int64_t stages, std::int64_t ends) {
  const std::int64_t slots = layers + (ends > 0 ? 1 + ends : 0);
  std::vector<std::int64_t> counts(static_cast<std::size_t>(stages), slots / stages);
  const auto left = static_cast<std::size_t>(slots % stages);
  for (std::size_t i = 0; i < left; ++i) ++counts[ends > 0 ? counts.size() - 2 - i : i];
  if (ends > 0) {
    --counts.front();
    counts.back() -= ends;
  }
  return counts;
}

}  // namespace

std::string expand_layout(std::string_view text) {
  std::string plain(text);
  std::erase_if(plain, [](char c) { return c == ' ' || c == '\t' || c == '\n'; });
  if (plain.starts_with('[')) return letters_of_lists(plain);
  std::erase(plain, ',');
  return expand_letters(expand_groups(plain));
}

std::vector<StageBlocks> parse_layout(std::string_view text, const LayoutCounts& counts, int ranks) {
  const std::string letters = expand_layout(text);
  check_letters(letters, text, counts);
  std::vector<StageBlocks> stages(1);
  for (const char c : letters) {
    StageBlocks& stage = stages.back();
    if (c == 'E') stage.embedding = true;
    if (c == 'e' || c == 't') ++stage.num_layers;
    if (c == 'm') stage.final_norm = true;
    if (c == 'L') stage.head = true;
    if (c == '|') stages.push_back({.first_layer = stage.first_layer + stage.num_layers});
  }
  if (counts.predictions == 0) stages.back().final_norm = true;
  for (std::size_t i = stages.size(); --i > 0 && !stages[i].final_norm;)
    stages[i].states_in = stages[i - 1].states_out = 1 + counts.predictions;
  if (stages.size() % static_cast<std::size_t>(ranks) != 0) {
    refuse(fmt::format("the number of stages, {}, must be a multiple of the pipeline size {}", stages.size(),
                       ranks),
           text, "add or remove |");
  }
  return stages;
}

std::string even_layout(const config::Model& m, std::int64_t stages, bool ends_count) {
  const std::int64_t end = 1 + m.mtp_num_layers, slots = m.all_layers() + 1 + end;
  const bool have_room = slots / stages >= end;
  const std::vector<std::int64_t> counts =
      even_counts(m.all_layers(), stages, ends_count && have_room ? end : 0);
  std::string layout = "E", last;
  std::int64_t encoder = m.encoder_num_layers;
  for (std::size_t s = 0, alike = 0; s < counts.size(); s += alike) {
    const std::int64_t count = counts[s];
    const std::int64_t of_encoder = std::clamp<std::int64_t>(encoder, 0, count);
    for (alike = 1; s + alike < counts.size() && counts[s + alike] == count;) ++alike;
    if (of_encoder > 0)
      alike = static_cast<std::size_t>(
          std::clamp<std::int64_t>(encoder / count, 1, static_cast<std::int64_t>(alike)));
    encoder -= of_encoder * static_cast<std::int64_t>(alike);
    last = letters('e', of_encoder) + letters('t', count - of_encoder);
    const std::size_t closed = s + alike == counts.size() ? alike - 1 : alike;
    layout += closed > 1 ? fmt::format("({}|)*{}", last, closed) : closed == 1 ? last + "|" : "";
  }
  return layout + last + letters('m', m.mtp_num_layers) + "L";
}

}  // namespace colonnade::layout
