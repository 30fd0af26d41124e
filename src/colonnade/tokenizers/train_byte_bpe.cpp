// See train_byte_bpe.h. A priority queue holds every pair with the words it occurred in when it was pushed.
// Stale counts are updated when a pair reaches the top.
#include "colonnade/tokenizers/train_byte_bpe.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <queue>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "colonnade/base/error.h"
#include "colonnade/tokenizers/normalizer.h"

namespace colonnade::tokenizers {
namespace {

using Pair = std::uint64_t;  // left << 32 | right
Pair pair_of(std::uint32_t left, std::uint32_t right) { return Pair{left} << 32 | right; }

struct Word {
  std::vector<std::uint32_t> ids;
  std::int64_t count = 0;
};

/// Heterogeneous lookup of words by views into a text.
struct WordHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
};

struct Entry {
  std::int64_t count;
  Pair pair;
  std::vector<std::uint32_t> words;
};
struct LowerPriority {
  bool operator()(const Entry& a, const Entry& b) const {
    return a.count != b.count ? a.count < b.count : a.pair > b.pair;
  }
};

class Trainer {
 public:
  explicit Trainer(const ByteBpeTraining& training) : training_(training) {
    for (const std::string& token : training.special_tokens) add_token(token);
    // The alphabet is ordered by the characters that represent the bytes.
    std::vector<std::pair<char32_t, unsigned char>> alphabet;
    for (unsigned byte = 0; byte < 256; ++byte)
      alphabet.emplace_back(char_of_byte(static_cast<unsigned char>(byte)), static_cast<unsigned char>(byte));
    std::sort(alphabet.begin(), alphabet.end());
    for (const auto& [c, byte] : alphabet) {
      std::string text;
      append_utf8(text, c);
      bytes_[byte] = add_token(text);
    }
    const auto least = static_cast<std::int64_t>(tokens_.size());
    if (training.vocab_size < least)
      throw ConfigError(
          fmt::format("--vocab-size must be at least {}, the bytes and special tokens; got {}; raise it",
                      least, training.vocab_size));
  }

  void read(const NextText& next) {
    std::unordered_map<std::string, std::int64_t, WordHash, std::equal_to<>> counts;
    std::vector<Span> spans;
    while (const std::optional<std::string_view> text = next()) {
      if (!is_utf8(*text))
        throw DataError(fmt::format("text must be UTF-8; got '{}'; convert it",
                                    replace_invalid_utf8(std::string(text->substr(0, 60)))));
      spans.clear();
      split_by_pattern(training_.pattern, *text, spans);
      for (const Span& span : spans) {
        const std::string_view word = text->substr(span.begin, span.end - span.begin);
        const auto seen = counts.find(word);
        if (seen != counts.end()) {
          ++seen->second;
        } else {
          counts.emplace(word, 1);
        }
      }
    }
    if (counts.empty()) throw DataError(kNoTrainingText);
    words_.reserve(counts.size());
    while (!counts.empty()) {
      const auto entry = counts.extract(counts.begin());
      Word& word = words_.emplace_back(Word{{}, entry.mapped()});
      word.ids.reserve(entry.key().size());
      for (const char byte : entry.key()) word.ids.push_back(bytes_[static_cast<unsigned char>(byte)]);
    }
  }

  void merge() {
    std::unordered_map<Pair, std::vector<std::uint32_t>> seen;
    for (std::uint32_t w = 0; w < words_.size(); ++w) {
      const std::vector<std::uint32_t>& ids = words_[w].ids;
      for (std::size_t i = 0; i + 1 < ids.size(); ++i)
        count(pair_of(ids[i], ids[i + 1]), words_[w].count, w, seen);
    }
    push_pairs(seen);
    while (static_cast<std::int64_t>(tokens_.size()) < training_.vocab_size && !queue_.empty()) {
      Entry top = queue_.top();
      queue_.pop();
      if (const std::int64_t now = counts_[top.pair]; now != top.count) {
        top.count = now;
        queue_.push(std::move(top));
        continue;
      }
      if (top.count < 1 || top.count < training_.min_frequency) break;
      const auto left = static_cast<std::uint32_t>(top.pair >> 32),
                 right = static_cast<std::uint32_t>(top.pair);
      const std::uint32_t merged = add_token(tokens_[left] + tokens_[right]);
      merges_.emplace_back(left, right);
      for (const std::uint32_t w : top.words) merge_in(w, left, right, merged, seen);
      push_pairs(seen);
    }
  }

  [[nodiscard]] std::string json() const {
    using nlohmann::ordered_json;
    ordered_json vocab = ordered_json::object(), merges = ordered_json::array(),
                 added = ordered_json::array();
    for (std::size_t i = 0; i < training_.special_tokens.size(); ++i)
      added.push_back({{"id", i},
                       {"content", training_.special_tokens[i]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
    // Inserting into nlohmann's ordered object by key would be quadratic.
    auto& members = vocab.get_ref<ordered_json::object_t&>();
    for (std::size_t i = 0; i < tokens_.size(); ++i) members.push_back({tokens_[i], i});
    // The last merge of a pair counts if it was merged twice.
    std::unordered_set<Pair> seen;
    for (auto merge = merges_.rbegin(); merge != merges_.rend(); ++merge)
      if (seen.insert(pair_of(merge->first, merge->second)).second)
        merges.push_back({tokens_[merge->first], tokens_[merge->second]});
    std::reverse(merges.begin(), merges.end());
    const bool gpt2 = training_.pattern == SplitPattern::kGpt2;
    const auto bytes = [](bool prefix, bool regex) {
      return ordered_json{
          {"type", "ByteLevel"}, {"add_prefix_space", prefix}, {"trim_offsets", true}, {"use_regex", regex}};
    };
    const ordered_json split = {{"type", "Split"},
                                {"pattern", {{"Regex", regex_of(training_.pattern)}}},
                                {"behavior", "Isolated"},
                                {"invert", false}};
    const ordered_json steps =
        gpt2 ? bytes(false, true)
             : ordered_json{{"type", "Sequence"}, {"pretokenizers", {split, bytes(false, false)}}};
    const ordered_json file = {{"version", "1.0"},
                               {"truncation", nullptr},
                               {"padding", nullptr},
                               {"added_tokens", added},
                               {"normalizer", nullptr},
                               {"pre_tokenizer", steps},
                               {"post_processor", nullptr},
                               {"decoder", bytes(true, true)},
                               {"model",
                                {{"type", "BPE"},
                                 {"dropout", nullptr},
                                 {"unk_token", nullptr},
                                 {"continuing_subword_prefix", nullptr},
                                 {"end_of_word_suffix", nullptr},
                                 {"fuse_unk", false},
                                 {"byte_fallback", false},
                                 {"ignore_merges", false},
                                 {"vocab", std::move(vocab)},
                                 {"merges", std::move(merges)}}}};
    return file.dump(2);
  }

 private:
  using Seen = std::unordered_map<Pair, std::vector<std::uint32_t>>;

  std::uint32_t add_token(const std::string& text) {
    const auto [at, is_new] = ids_.try_emplace(text, static_cast<std::uint32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(text);
    return at->second;
  }

  void count(Pair pair, std::int64_t change, std::uint32_t word, Seen& seen) {
    counts_[pair] += change;
    if (change <= 0) return;
    std::vector<std::uint32_t>& words = seen[pair];
    if (words.empty() || words.back() != word) words.push_back(word);
  }

  void push_pairs(Seen& seen) {
    for (auto& [pair, words] : seen)
      if (const std::int64_t now = counts_[pair]; now > 0) queue_.push({now, pair, std::move(words)});
    seen.clear();
  }

  /// Merges a pair from left to right in a word and updates the counts.
  void merge_in(std::uint32_t number, std::uint32_t left, std::uint32_t right, std::uint32_t merged,
                Seen& seen) {
    std::vector<std::uint32_t>& ids = words_[number].ids;
    const std::int64_t times = words_[number].count;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] != left || i + 1 == ids.size() || ids[i + 1] != right) {
        ids[kept++] = ids[i];
        continue;
      }
      if (kept > 0) {
        count(pair_of(ids[kept - 1], left), -times, number, seen);
        count(pair_of(ids[kept - 1], merged), times, number, seen);
      }
      if (i + 2 < ids.size()) {
        count(pair_of(right, ids[i + 2]), -times, number, seen);
        count(pair_of(merged, ids[i + 2]), times, number, seen);
      }
      ids[kept++] = merged;
      ++i;
    }
    ids.resize(kept);
  }

  const ByteBpeTraining& training_;
  std::vector<std::string> tokens_;  ///< by id
  std::unordered_map<std::string, std::uint32_t> ids_;
  std::array<std::uint32_t, 256> bytes_{};
  std::vector<Word> words_;
  std::unordered_map<Pair, std::int64_t> counts_;
  std::priority_queue<Entry, std::vector<Entry>, LowerPriority> queue_;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> merges_;
};

}  // namespace

std::string train_byte_bpe(const NextText& next, const ByteBpeTraining& training) {
  Trainer trainer(training);
  trainer.read(next);
  trainer.merge();
  return trainer.json();
}

}  // namespace colonnade::tokenizers
