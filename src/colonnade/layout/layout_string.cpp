// See layout_string.h.
#include "colonnade/layout/layout_string.h"

#include <algorithm>
#include <charconv>

#include "colonnade/base/error.h"

namespace colonnade::layout {
namespace {

constexpr std::size_t kMaxLetters = 1'000'000;
constexpr std::string_view kFlag = "--pipeline-model-parallel-layout";

[[noreturn]] void reject(std::string_view rule, std::string_view got, std::string_view fix) {
  throw ConfigError(fmt::format("{} {}; got '{}'; {}", kFlag, rule, got, fix));
}

/// Reads `*n` at text[at] and moves `at` after it. Returns -1 if there is no `*`.
std::int64_t read_factor(std::string_view text, std::size_t& at) {
  if (at >= text.size() || text[at] != '*') return -1;
  std::int64_t n = -1;
  const auto [end, error] = std::from_chars(text.data() + at + 1, text.data() + text.size(), n);
  if (error != std::errc{} || n < 0 || n > static_cast<std::int64_t>(kMaxLetters)) {
    reject("must have a repeat count after *", text, "write t*3 or (tt|)*3");
  }
  at = static_cast<std::size_t>(end - text.data());
  return n;
}

void repeat(std::string& out, std::string_view part, std::int64_t times) {
  if (times > 0 &&
      part.size() > (kMaxLetters - std::min(out.size(), kMaxLetters)) / static_cast<std::size_t>(times)) {
    reject(fmt::format("must expand to at most {} letters", kMaxLetters), fmt::format("{}*{}", part, times),
           "reduce the repeat counts");
  }
  for (std::int64_t i = 0; i < times; ++i) out += part;
}

std::string expand_groups(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == ')')
      reject("must not close a bracket that was not opened", text, "remove ')' or add '('");
    if (text[at] != '(') {
      out += text[at++];
      continue;
    }
    const std::size_t close = text.find(')', at);
    if (close == std::string_view::npos) reject("must close every bracket", text, "add ')' and *n");
    const std::string_view inside = text.substr(at + 1, close - at - 1);
    if (inside.find('(') != std::string_view::npos)
      reject("must not nest groups", text, "expand the inner group");
    at = close + 1;
    const std::int64_t times = read_factor(text, at);
    if (times < 0) reject("must have a repeat count after a group", text, "write (tt|)*3");
    repeat(out, inside, times);
  }
  return out;
}

std::string expand_letters(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::string_view letter = text.substr(at, 1);
    if (letter == "*") reject("must have a letter or a group before *", text, "write t*3");
    ++at;
    const std::int64_t times = read_factor(text, at);
    repeat(out, letter, times < 0 ? 1 : times);
  }
  return out;
}

void check_letters(const std::string& letters, std::string_view text, const config::Model& model) {
  for (const char c : letters) {
    if (std::string_view("EetmL|").find(c) == std::string_view::npos) {
      reject(fmt::format("must consist of the letters E, e, t, m, L and |, not '{}'", c), text, "remove it");
    }
  }
  std::string blocks = letters;
  std::erase(blocks, '|');
  const auto embeddings = std::count(blocks.begin(), blocks.end(), 'E');
  const auto heads = std::count(blocks.begin(), blocks.end(), 'L');
  const auto layers = std::count(blocks.begin(), blocks.end(), 't');
  if (embeddings != 1)
    reject(fmt::format("must have E once and first, not {} times", embeddings), text, "begin with E");
  if (blocks.front() != 'E')
    reject("must have E once and first, before all other letters", text, "begin with E");
  if (heads != 1) reject(fmt::format("must have L once and last, not {} times", heads), text, "end with L");
  if (blocks.back() != 'L') reject("must have L once and last, after all other letters", text, "end with L");
  if (letters.front() != 'E') reject("must have E in the first stage", text, "remove the | before it");
  if (letters.back() != 'L') reject("must have L in the last stage", text, "remove the | after it");
  const auto mtp_layers = std::count(blocks.begin(), blocks.end(), 'm');
  if (mtp_layers != model.mtp_num_layers) {
    reject(fmt::format("must have m once per MTP layer, not {} times for --mtp-num-layers {}", mtp_layers,
                       model.mtp_num_layers),
           text, "add or remove m");
  }
  if (layers != model.num_layers) {
    reject(
        fmt::format("must have t once per layer, not {} times for --num-layers {}", layers, model.num_layers),
        text, "add or remove t");
  }
  const auto encoder_layers = std::count(blocks.begin(), blocks.end(), 'e');
  if (encoder_layers != model.encoder_num_layers) {
    reject(fmt::format("must have e once per encoder layer, not {} times for {} layers", encoder_layers,
                       model.encoder_num_layers),
           text, model.encoder_num_layers == 0 ? "remove e" : "add or remove e");
  }
  if (encoder_layers > 0 && blocks.rfind('e') > blocks.find('t'))
    reject("must have e (encoder layers) before t (decoder layers)", text, "move e to the front");
  if (mtp_layers > 0 && blocks.find('m') < blocks.rfind('t'))
    reject("must have m after all layers t", text, "move m to the end, before L");
  if (letters.find(std::string(static_cast<std::size_t>(mtp_layers), 'm')) == std::string::npos)
    reject("must have all m in one stage", text, "move them to one side of the |");
}

/// "", "t" or "t*4".
std::string letters(char letter, std::int64_t count) {
  return count < 1 ? "" : count == 1 ? std::string(1, letter) : fmt::format("{}*{}", letter, count);
}

/// Layers per stage. With `ends`, the first stage has one layer less and the last one `ends` less.
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
  if (plain.starts_with('[')) return letters_from_lists(plain);
  std::erase(plain, ',');
  return expand_letters(expand_groups(plain));
}

std::vector<StageBlocks> parse_layout(std::string_view text, const config::Model& model, int ranks) {
  const std::string letters = expand_layout(text);
  check_letters(letters, text, model);
  const std::vector<BlockId> blocks = model_blocks(model);
  std::vector<StageBlocks> stages(1);
  std::size_t next = 0;
  const auto take = [&] { stages.back().blocks.push_back(blocks[next++]); };
  for (const char c : letters) {
    if (c == '|') stages.emplace_back();
    if (c == '|') continue;
    if (blocks[next].kind == BlockKind::kFinalNorm) take();  // has no letter: in the stage of m or L
    take();
  }
  for (std::size_t i = stages.size(); --i > 0 && !stages[i].has(BlockKind::kFinalNorm);)
    stages[i].states_in = stages[i - 1].states_out = 1 + model.mtp_num_layers;
  if (stages.size() % static_cast<std::size_t>(ranks) != 0) {
    reject(fmt::format("must have a number of stages that is a multiple of the pipeline size {}, not {}",
                       ranks, stages.size()),
           text, "add or remove |");
  }
  return stages;
}

std::string even_layout(const config::Model& m, std::int64_t stages, bool ends_count) {
  const std::int64_t end = 1 + m.mtp_num_layers, slots = m.total_layers() + 1 + end;
  const bool fits = slots / stages >= end;
  const std::vector<std::int64_t> counts =
      even_counts(m.total_layers(), stages, ends_count && fits ? end : 0);
  std::string layout = "E", last;
  std::int64_t encoder = m.encoder_num_layers;
  for (std::size_t s = 0, equal = 0; s < counts.size(); s += equal) {
    const std::int64_t count = counts[s];
    const std::int64_t in_encoder = std::clamp<std::int64_t>(encoder, 0, count);
    for (equal = 1; s + equal < counts.size() && counts[s + equal] == count;) ++equal;
    if (in_encoder > 0)
      equal = static_cast<std::size_t>(
          std::clamp<std::int64_t>(encoder / count, 1, static_cast<std::int64_t>(equal)));
    encoder -= in_encoder * static_cast<std::int64_t>(equal);
    last = letters('e', in_encoder) + letters('t', count - in_encoder);
    const std::size_t closed = s + equal == counts.size() ? equal - 1 : equal;
    layout += closed > 1 ? fmt::format("({}|)*{}", last, closed) : closed == 1 ? last + "|" : "";
  }
  return layout + last + letters('m', m.mtp_num_layers) + "L";
}

}  // namespace colonnade::layout
