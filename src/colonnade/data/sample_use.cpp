// See sample_use.h.
#include "colonnade/data/sample_use.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace colonnade::data {

bool SetUse::read_once(Reads& reads, const SamplePiece& piece) {
  if (reads.read == Reads::kAll) return false;
  const std::int64_t sequence = piece.sequence;
  Range stretch{piece.offset, piece.offset + piece.length - piece.labels};
  if (reads.read == Reads::kPart) {
    const auto after = stretches_.lower_bound({sequence, stretch.begin});
    const auto before = after == stretches_.begin() ? stretches_.end() : std::prev(after);
    const bool is_after = after != stretches_.end() && after->first.first == sequence;
    const bool is_before = before != stretches_.end() && before->first.first == sequence;
    if ((is_after && after->first.second < stretch.end) || (is_before && before->second > stretch.begin))
      return false;
    if (is_after && after->first.second == stretch.end) {
      stretch.end = after->second;
      stretches_.erase(after);
    }
    if (is_before && before->second == stretch.begin) {
      stretch.begin = before->first.second;
      stretches_.erase(before);
    }
  }
  reads.read = stretch.size() == piece.of ? Reads::kAll : Reads::kPart;
  if (reads.read == Reads::kPart) stretches_.emplace(std::pair(sequence, stretch.begin), stretch.end);
  return true;
}

void SetUse::add(std::int64_t number, std::span<const SamplePiece> pieces) {
  constexpr auto kMost = std::numeric_limits<std::uint8_t>::max();
  ++samples_;
  for (const SamplePiece& piece : pieces) {
    const std::int64_t inputs = piece.length - piece.labels;
    tokens_ += inputs;
    if (inputs == 0) continue;
    const auto at = static_cast<std::size_t>(piece.sequence - order_.sequences.begin);
    if (at >= reads_.size())
      reads_.resize(std::max(at + 1, static_cast<std::size_t>(order_.sequences.size())));
    if (!first_again_ && !read_once(reads_[at], piece)) {
      first_again_ = number;
      stretches_.clear();
    }
    if (first_again_ && reads_[at].read == Reads::kNothing) reads_[at].read = Reads::kPart;
    if (piece.offset == 0 && reads_[at].begun < kMost) ++reads_[at].begun;
  }
}

double SetUse::epochs() const {
  return order_.tokens == 0 ? 0 : static_cast<double>(tokens_) / static_cast<double>(order_.tokens);
}

SetUse::Sequences SetUse::sequences() const {
  Sequences counts{.all = order_.sequences.size()};
  for (const Reads& each : reads_) {
    counts.read += each.read != Reads::kNothing ? 1 : 0;
    counts.again += each.begun > 1 ? 1 : 0;
    counts.most = std::max(counts.most, int{each.begun});
  }
  return counts;
}

void add_use(const SampleSource& source, std::int64_t sample, std::int64_t number,
             std::span<SetUse* const> sets) {
  const std::vector<SamplePiece> pieces = source.pieces(sample);
  if (!pieces.empty()) sets[static_cast<std::size_t>(pieces.front().set)]->add(number, pieces);
}

}  // namespace colonnade::data
