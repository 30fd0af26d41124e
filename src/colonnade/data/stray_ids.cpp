// See stray_ids.h.
#include "colonnade/data/stray_ids.h"

#include <algorithm>
#include <set>
#include <span>
#include <vector>

#include "colonnade/base/error.h"

namespace colonnade::data {
namespace {

constexpr std::int64_t kPlaces = 64, kTokens = 1024, kSequences = 256;  // sequences of a place

class Look {
 public:
  Look(const TokenSource& source, Range sequences, std::int64_t end)
      : source_(source), sequences_(sequences), end_(end), small_(is_small()) {}

  /// So that the disk is asked for all places at once, and for those of other looks.
  void announce() const {
    for (std::int64_t i = 0; !small_ && i < kPlaces; ++i)
      source_.announce(place(i).sequence, place(i).offset, kTokens);
  }

  std::optional<StrayId> find() {
    if (small_) return read(sequences_.begin, 0, kPlaces);
    for (std::int64_t i = 0; i < kPlaces; ++i)
      if (auto found = read(place(i).sequence, place(i).offset, 1)) return found;
    return std::nullopt;
  }

 private:
  struct Place {
    std::int64_t sequence, offset;
  };

  /// It lies i / kLast through the sequences, whose lengths count alike.
  [[nodiscard]] Place place(std::int64_t i) const {
    constexpr std::int64_t kLast = kPlaces - 1;
    const std::int64_t through = i * sequences_.size(),
                       number = std::min(through / kLast, sequences_.size() - 1);
    const std::int64_t first = sequences_.begin + number;
    const std::int64_t last_offset = std::max<std::int64_t>(source_.length(first) - kTokens, 0);
    return {first, last_offset * (through - number * kLast) / kLast};
  }

  [[nodiscard]] bool is_small() const {
    if (sequences_.size() > kPlaces * kSequences) return false;
    std::int64_t tokens = 0;
    for (std::int64_t i = sequences_.begin; i < sequences_.end && tokens <= kPlaces * kTokens; ++i)
      tokens += source_.length(i);
    return tokens <= kPlaces * kTokens;
  }

  /// As much as `places` hold.
  std::optional<StrayId> read(std::int64_t first, std::int64_t offset, std::int64_t places) {
    const std::int64_t last = std::min(sequences_.end, first + places * kSequences);
    std::int64_t left = places * kTokens;
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

  [[nodiscard]] StrayId at(std::int64_t id, std::int64_t sequence, std::int64_t offset) const {
    std::int64_t document = 0, behind = source_.num_documents();  // it begins at or before the sequence
    while (behind - document > 1) {
      const std::int64_t middle = document + (behind - document) / 2;
      (source_.document_start(middle) <= sequence ? document : behind) = middle;
    }
    for (std::int64_t i = source_.document_start(document); i < sequence; ++i) offset += source_.length(i);
    return {.id = id, .document = document, .place = offset};
  }

  const TokenSource& source_;
  Range sequences_;
  std::int64_t end_;
  bool small_;
  std::vector<std::int64_t> buffer_;
};

constexpr const char* kDamaged =
    "the data was made with another tokenizer, or is damaged; give that tokenizer or make the data again";

std::string describe(const TokenSource& source, const StrayId& stray, const TextIds& ids) {
  const std::string place =
      fmt::format("got {} in document {} (token {} of it)", stray.id, stray.document, stray.place);
  const std::string counted = fmt::format(
      "`colonnade data inspect {} --check-tokens --vocab-size {}` counts them", source.name(), ids.end);
  if (ids.end == ids.vocab_size)
    return fmt::format("{}: token ids must be 0 to {}; {}; {}; {}", source.name(), ids.end - 1, place,
                       way_out_of_stray_id(stray.id, ids.end), counted);
  return fmt::format(
      "{}: text of numbers must be 0 to {}, below the special ids at the end of the vocabulary of {}; {}; {}; {}",
      source.name(), ids.end - 1, ids.vocab_size, place,
      stray.id < 0 ? kDamaged
                   : fmt::format("raise --vocab-size to {} or more, or give the data's tokenizer",
                                 stray.id + 1 + ids.vocab_size - ids.end),
      counted);
}

/// A data set's sequences that samples are made of, however many of them are.
struct Text {
  std::string name;
  Range sequences;
  friend bool operator==(const Text& a, const Text& b) {
    return a.name == b.name && a.sequences.begin == b.sequences.begin && a.sequences.end == b.sequences.end;
  }
};

/// A look at the text of all splits.
struct Looks {
  struct One {
    Text text;
    const TokenSource& source;
    TextIds ids;
    Look look;
  };
  std::vector<One> all;

  explicit Looks(const Splits& splits) {
    for (const auto& split : splits) {
      const TextIds ids = split == nullptr ? TextIds{} : split->text_ids();
      if (ids.end == 0) continue;
      split->samples().for_each_text([&](const TokenSource& source, Range sequences) {
        const Text text{source.name(), sequences};
        if (std::ranges::find(all, text, &One::text) == all.end())
          all.push_back({text, source, ids, {source, sequences, ids.end}});
      });
    }
  }
};

}  // namespace

std::optional<StrayId> find_stray_id(const TokenSource& source, Range sequences, std::int64_t end) {
  Look look(source, sequences, end);
  look.announce();
  return look.find();
}

std::string vocabulary_fault(const Splits& splits) {
  Looks looks(splits);
  for (const auto& [text, source, ids, look] : looks.all) look.announce();
  std::string first, named;
  std::set<std::string> others;
  for (auto& [text, source, ids, look] : looks.all) {
    const auto stray = look.find();
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

std::string way_out_of_stray_id(std::int64_t id, std::int64_t vocab_size) {
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
