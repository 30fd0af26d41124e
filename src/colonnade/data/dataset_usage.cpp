// See dataset_usage.h.
#include "colonnade/data/dataset_usage.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace colonnade::data {

bool DatasetUsage::read_once(Reads& reads, const SampleSpan& piece) {
  if (reads.read == Reads::kAll) return false;
  const std::int64_t sequence = piece.sequence;
  Range span{piece.offset, piece.offset + piece.length - piece.labels};
  if (reads.read == Reads::kPart) {
    const auto after = read_spans_.lower_bound({sequence, span.begin});
    const auto before = after == read_spans_.begin() ? read_spans_.end() : std::prev(after);
    const bool is_after = after != read_spans_.end() && after->first.first == sequence;
    const bool is_before = before != read_spans_.end() && before->first.first == sequence;
    if ((is_after && after->first.second < span.end) || (is_before && before->second > span.begin))
      return false;
    if (is_after && after->first.second == span.end) {
      span.end = after->second;
      read_spans_.erase(after);
    }
    if (is_before && before->second == span.begin) {
      span.begin = before->first.second;
      read_spans_.erase(before);
    }
  }
  reads.read = span.size() == piece.sequence_length ? Reads::kAll : Reads::kPart;
  if (reads.read == Reads::kPart) read_spans_.emplace(std::pair(sequence, span.begin), span.end);
  return true;
}

void DatasetUsage::add(std::int64_t number, std::span<const SampleSpan> pieces) {
  constexpr auto kMost = std::numeric_limits<std::uint8_t>::max();
  ++samples_;
  for (const SampleSpan& piece : pieces) {
    const std::int64_t inputs = piece.length - piece.labels;
    tokens_ += inputs;
    if (inputs == 0) continue;
    const auto at = static_cast<std::size_t>(piece.sequence - order_.sequences.begin);
    if (at >= reads_.size())
      reads_.resize(std::max(at + 1, static_cast<std::size_t>(order_.sequences.size())));
    if (!first_repeat_ && !read_once(reads_[at], piece)) {
      first_repeat_ = number;
      read_spans_.clear();
    }
    if (first_repeat_ && reads_[at].read == Reads::kNothing) reads_[at].read = Reads::kPart;
    if (piece.offset == 0 && reads_[at].starts < kMost) ++reads_[at].starts;
  }
}

double DatasetUsage::epochs() const {
  return order_.tokens == 0 ? 0 : static_cast<double>(tokens_) / static_cast<double>(order_.tokens);
}

DatasetUsage::Sequences DatasetUsage::sequences() const {
  Sequences counts{.all = order_.sequences.size()};
  for (const Reads& each : reads_) {
    counts.read += each.read != Reads::kNothing ? 1 : 0;
    counts.repeated += each.starts > 1 ? 1 : 0;
    counts.most = std::max(counts.most, int{each.starts});
  }
  return counts;
}

void add_usage(const SampleSource& source, std::int64_t sample, std::int64_t number,
               std::span<DatasetUsage* const> sets) {
  const std::vector<SampleSpan> pieces = source.spans(sample);
  if (!pieces.empty()) sets[static_cast<std::size_t>(pieces.front().set)]->add(number, pieces);
}

}  // namespace colonnade::data
