// How often samples read the sequences of their data sets: what `data inspect` says of a run to come and
// `data audit` of a run that was.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "colonnade/data/sample_source.h"

namespace colonnade::data {

/// Of one data set. Memory: two bytes for each sequence, and until a token is read again about 64 for each
/// stretch of a sequence that is read and does not yet reach from its first token to its last: at most two
/// for each sample.
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
  /// The first sample one of whose inputs was an input before; none: every token was one once at most.
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
    enum : std::uint8_t { kNothing, kPart, kAll } read = kNothing;
  };
  std::vector<Reads> reads_;  // of the sequences of its part
  // Of sequences read in part, by sequence and first token: the end. None touch or overlap, and there are
  // none once a token was read again.
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> stretches_;

  /// Notes that the inputs of a piece are read. False: one of them was before.
  bool read_once(Reads& reads, const SamplePiece& piece);
};

/// Adds samples of `source` to the data sets that they read. `sets`: one for each of source.orders().
/// `number`: of the sample in the run.
void add_use(const SampleSource& source, std::int64_t sample, std::int64_t number,
             std::span<SetUse* const> sets);

}  // namespace colonnade::data
