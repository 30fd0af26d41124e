// See out_of_vocabulary.h.
#include "colonnade/data/out_of_vocabulary.h"

#include <algorithm>
#include <set>
#include <span>
#include <vector>

#include "colonnade/base/error.h"

namespace colonnade::data {
namespace {

// Probes of a data set: their number, and the most tokens and sequences read at each.
constexpr std::int64_t kProbes = 64, kTokens = 1024, kSequences = 256;

/// Searches some positions of a data set for ids outside the vocabulary.
class Probe {
 public:
  Probe(const TokenSource& source, Range sequences, std::int64_t end)
      : source_(source), sequences_(sequences), end_(end), small_(is_small()) {}

  /// Starts reading all positions from disk at once, also those of other probes.
  void prefetch() const {
    for (std::int64_t i = 0; !small_ && i < kProbes; ++i)
      source_.prefetch(position(i).sequence, position(i).offset, kTokens);
  }

  std::optional<OutOfVocabularyId> find() {
    if (small_) return read(sequences_.begin, 0, kProbes);
    for (std::int64_t i = 0; i < kProbes; ++i)
      if (auto found = read(position(i).sequence, position(i).offset, 1)) return found;
    return std::nullopt;
  }

 private:
  struct Position {
    std::int64_t sequence, offset;
  };

  /// Position of probe `i`: the fraction i / kLast of the sequences, each of equal weight.
  [[nodiscard]] Position position(std::int64_t i) const {
    constexpr std::int64_t kLast = kProbes - 1;
    const std::int64_t through = i * sequences_.size(),
                       number = std::min(through / kLast, sequences_.size() - 1);
    const std::int64_t first = sequences_.begin + number;
    const std::int64_t last_offset = std::max<std::int64_t>(source_.length(first) - kTokens, 0);
    return {first, last_offset * (through - number * kLast) / kLast};
  }

  [[nodiscard]] bool is_small() const {
    if (sequences_.size() > kProbes * kSequences) return false;
    std::int64_t tokens = 0;
    for (std::int64_t i = sequences_.begin; i < sequences_.end && tokens <= kProbes * kTokens; ++i)
      tokens += source_.length(i);
    return tokens <= kProbes * kTokens;
  }

  /// Searches the tokens of `probes` probes.
  std::optional<OutOfVocabularyId> read(std::int64_t first, std::int64_t offset, std::int64_t probes) {
    const std::int64_t last = std::min(sequences_.end, first + probes * kSequences);
    std::int64_t left = probes * kTokens;
    for (std::int64_t sequence = first; sequence < last && left > 0; ++sequence, offset = 0) {
      buffer_.resize(static_cast<std::size_t>(std::min(left, source_.length(sequence) - offset)));
      source_.tokens(sequence, offset, buffer_);
      left -= std::ssize(buffer_);
      for (std::size_t i = 0; i < buffer_.size(); ++i)
        if (buffer_[i] < 0 || buffer_[i] >= end_)
          return at(buffer_[i], sequence, offset + static_cast<std::int64_t>(i));
    }
    return std::nullopt;
  }

  [[nodiscard]] OutOfVocabularyId at(std::int64_t id, std::int64_t sequence, std::int64_t offset) const {
    std::int64_t document = 0,
                 end = source_.num_documents();  // the document starts at or before the sequence
    while (end - document > 1) {
      const std::int64_t middle = document + (end - document) / 2;
      (source_.document_start(middle) <= sequence ? document : end) = middle;
    }
    for (std::int64_t i = source_.document_start(document); i < sequence; ++i) offset += source_.length(i);
    return {.id = id, .document = document, .position = offset};
  }

  const TokenSource& source_;
  Range sequences_;
  std::int64_t end_;
  bool small_;
  std::vector<std::int64_t> buffer_;
};

constexpr const char* kDamaged =
    "the data was made with another tokenizer or is damaged; give that tokenizer or rebuild the data";

std::string describe(const TokenSource& source, const OutOfVocabularyId& stray, const TextIds& ids) {
  const std::string got =
      fmt::format("got {} in document {} (token {} of it)", stray.id, stray.document, stray.position);
  const std::string count_command = fmt::format(
      "`colonnade data inspect {} --check-tokens --vocab-size {}` counts them", source.name(), ids.end);
  if (ids.end == ids.vocab_size)
    return fmt::format("{}: token ids must be 0 to {}; {}; {}; {}", source.name(), ids.end - 1, got,
                       out_of_vocabulary_fix(stray.id, ids.end), count_command);
  return fmt::format(
      "{}: token ids of text must be 0 to {}, below the special ids at the end of the vocabulary of {}; {}; {}; {}",
      source.name(), ids.end - 1, ids.vocab_size, got,
      stray.id < 0 ? kDamaged
                   : fmt::format("raise --vocab-size to {} or more, or give the data's tokenizer",
                                 stray.id + 1 + ids.vocab_size - ids.end),
      count_command);
}

/// A range of sequences of a data set; equal ones are probed once.
struct Text {
  std::string name;
  Range sequences;
  friend bool operator==(const Text& a, const Text& b) {
    return a.name == b.name && a.sequences.begin == b.sequences.begin && a.sequences.end == b.sequences.end;
  }
};

/// The probes of the text of all splits.
struct Probes {
  struct One {
    Text text;
    const TokenSource& source;
    TextIds ids;
    Probe probe;
  };
  std::vector<One> all;

  explicit Probes(const Splits& splits) {
    for (const auto& split : splits) {
      const TextIds ids = split == nullptr ? TextIds{} : split->text_ids();
      if (ids.end == 0) continue;
      split->samples().for_each_source([&](const TokenSource& source, Range sequences) {
        const Text text{source.name(), sequences};
        if (std::ranges::find(all, text, &One::text) == all.end())
          all.push_back({text, source, ids, {source, sequences, ids.end}});
      });
    }
  }
};

}  // namespace

std::optional<OutOfVocabularyId> find_out_of_vocabulary_id(const TokenSource& source, Range sequences,
                                                           std::int64_t end) {
  Probe probe(source, sequences, end);
  probe.prefetch();
  return probe.find();
}

std::string vocabulary_error(const Splits& splits) {
  Probes probes(splits);
  for (const auto& [text, source, ids, probe] : probes.all) probe.prefetch();
  std::string first, named;
  std::set<std::string> others;
  for (auto& [text, source, ids, probe] : probes.all) {
    const auto stray = probe.find();
    if (!stray) continue;
    if (first.empty()) {
      first = describe(source, *stray, ids);
      named = text.name;
    } else if (text.name != named) {
      others.insert(text.name);
    }
  }
  if (others.empty()) return first;
  return fmt::format("{}; {}", first,
                     others.size() == 1 ? "1 more data set has such ids"
                                        : fmt::format("{} more data sets have such ids", others.size()));
}

std::string out_of_vocabulary_fix(std::int64_t id, std::int64_t vocab_size) {
  if (id < 0) return kDamaged;
  const std::string least = fmt::format(
      "the data was made with another tokenizer, give that one or --vocab-size {} or more", id + 1);
  return id > vocab_size ? least
                         : least + fmt::format(
                                       " ({} for numbers of Megatron's NullTokenizer, whose end of "
                                       "document is its --vocab-size)",
                                       vocab_size + 1);
}

}  // namespace colonnade::data
