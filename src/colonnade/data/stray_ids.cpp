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
      : source_(source), sequences_(sequences), end_(end) {}

  std::optional<StrayId> find() {
    if (is_small()) return read(sequences_.begin, 0, kPlaces);
    for (std::int64_t i = 0; i < kPlaces; ++i) source_.announce(place(i).sequence, place(i).offset, kTokens);
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
  std::vector<std::int64_t> buffer_;
};

std::string describe(const TokenSource& source, const StrayId& stray, const TextIds& ids) {
  const std::string place =
      fmt::format("got {} in document {} (token {} of it)", stray.id, stray.document, stray.place);
  const std::string counted = fmt::format(
      "`colonnade data inspect {} --check-tokens --vocab-size {}` counts them", source.name(), ids.end);
  if (ids.end < ids.vocab_size)
    return fmt::format(
        "{}: text of numbers must be below {}, the first of the special ids at the end of the vocabulary of {}; {}; "
        "raise --vocab-size, or give the data's tokenizer; {}",
        source.name(), ids.end, ids.vocab_size, place, counted);
  return fmt::format("{}: token ids must be below the vocabulary size {}; {}; {}; {}", source.name(), ids.end,
                     place, way_out_of_stray_id(stray.id, ids.end), counted);
}

}  // namespace

std::optional<StrayId> find_stray_id(const TokenSource& source, Range sequences, std::int64_t end) {
  return Look(source, sequences, end).find();
}

std::string vocabulary_fault(const Splits& splits) {
  std::string first;
  std::set<std::string> others;
  std::string named;
  for (const auto& split : splits) {
    const TextIds ids = split == nullptr ? TextIds{} : split->text_ids();
    if (ids.end == 0) continue;
    split->samples().for_each_text([&](const TokenSource& source, Range sequences) {
      const auto stray = find_stray_id(source, sequences, ids.end);
      if (!stray) return;
      if (first.empty()) {
        first = describe(source, *stray, ids);
        named = source.name();
      } else if (source.name() != named) {
        others.insert(source.name());
      }
    });
  }
  return others.empty() ? first : fmt::format("{}; {} more data sets have such ids", first, others.size());
}

std::string way_out_of_stray_id(std::int64_t id, std::int64_t vocab_size) {
  return fmt::format("the data was made with another tokenizer, give that one or --vocab-size{}",
                     id == vocab_size
                         ? fmt::format(" ({} for numbers of Megatron's NullTokenizer, whose end of "
                                       "document is its --vocab-size)",
                                       vocab_size + 1)
                         : "");
}

}  // namespace colonnade::data
