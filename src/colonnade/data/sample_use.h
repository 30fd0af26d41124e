// How often samples read the sequences of their data sets: what `data inspect` says of a run to come and
// `data audit` of a run that was.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "colonnade/data/sample_source.h"

namespace colonnade::data {

/// Of one data set.
class SetUse {
 public:
  explicit SetUse(SampleOrder order) : order_(std::move(order)) {}

  /// Sample `number` of the run reads `pieces` of this data set. A sequence is begun when its first token is
  /// an input: every reading of all of it does that once.
  void add(std::int64_t number, std::span<const SamplePiece> pieces);

  [[nodiscard]] const SampleOrder& order() const { return order_; }
  [[nodiscard]] std::int64_t samples() const { return samples_; }
  [[nodiscard]] std::int64_t tokens() const { return tokens_; }  ///< inputs, whatever their sequence
  /// Passes over the tokens of its part: 1.5 is all of them and half of them again.
  [[nodiscard]] double epochs() const;
  /// The first sample that begins a sequence again; none: each was begun once at most. Where sequences are
  /// longer than samples, an earlier one may have read later tokens again.
  [[nodiscard]] std::optional<std::int64_t> first_again() const { return first_again_; }

  struct Sequences {
    std::int64_t all = 0, read = 0, again = 0;  ///< of its part; with any input; begun more than once
    int most = 0;                               ///< of the one that was begun most often; 255: or more
  };
  [[nodiscard]] Sequences sequences() const;

 private:
  SampleOrder order_;
  std::int64_t samples_ = 0, tokens_ = 0;
  std::optional<std::int64_t> first_again_;
  struct Reads {
    std::uint8_t begun = 0;
    bool read = false;
  };
  std::vector<Reads> reads_;  // of the sequences of its part
};

/// Adds samples of `source` to the data sets that they read. `sets`: one for each of source.orders().
/// `number`: of the sample in the run.
void add_use(const SampleSource& source, std::int64_t sample, std::int64_t number,
             std::span<SetUse* const> sets);

}  // namespace colonnade::data
