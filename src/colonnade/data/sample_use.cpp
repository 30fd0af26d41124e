// See sample_use.h.
#include "colonnade/data/sample_use.h"

#include <algorithm>
#include <limits>

namespace colonnade::data {

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
    reads_[at].read = true;
    if (piece.offset > 0) continue;
    if (reads_[at].begun > 0 && !first_again_) first_again_ = number;
    if (reads_[at].begun < kMost) ++reads_[at].begun;
  }
}

double SetUse::epochs() const {
  return order_.tokens == 0 ? 0 : static_cast<double>(tokens_) / static_cast<double>(order_.tokens);
}

SetUse::Sequences SetUse::sequences() const {
  Sequences counts{.all = order_.sequences.size()};
  for (const Reads& each : reads_) {
    counts.read += each.read ? 1 : 0;
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
