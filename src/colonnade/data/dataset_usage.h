// Usage statistics: how often samples read the sequences of their data sets. `data inspect` reports them for
// a planned run, `data audit` for a finished one.
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

/// Usage of one data set. Memory: two bytes per sequence and, until a token is read twice, about 64 bytes per
/// span of a partly read sequence; at most two spans per sample.
class DatasetUsage {
 public:
  explicit DatasetUsage(SampleOrder order) : order_(std::move(order)) {}

  /// Adds sample `number` of the run, which reads `pieces` of this data set. A sequence starts when its first
  /// token is an input, which happens once per complete read.
  void add(std::int64_t number, std::span<const SampleSpan> pieces);

  [[nodiscard]] const SampleOrder& order() const { return order_; }
  [[nodiscard]] std::int64_t samples() const { return samples_; }
  [[nodiscard]] std::int64_t tokens() const { return tokens_; }  ///< input tokens
  /// Fractional epochs over the tokens of the split.
  [[nodiscard]] double epochs() const;
  /// The first sample with an input token that was read before; empty if no token was read twice.
  [[nodiscard]] std::optional<std::int64_t> first_repeat() const { return first_repeat_; }

  struct Sequences {
    std::int64_t all = 0;       ///< sequences of the split
    std::int64_t read = 0;      ///< sequences with any input
    std::int64_t repeated = 0;  ///< sequences started more than once
    int most = 0;               ///< maximum number of starts; 255 means at least 255
  };
  [[nodiscard]] Sequences sequences() const;

 private:
  SampleOrder order_;
  std::int64_t samples_ = 0, tokens_ = 0;
  std::optional<std::int64_t> first_repeat_;
  struct Reads {
    std::uint8_t starts = 0;
    enum : std::uint8_t { kNothing, kPart, kAll } read = kNothing;
  };
  std::vector<Reads> reads_;  // per sequence of the split
  // Spans of partly read sequences: (sequence, begin) to end, merged. Cleared once a token is read twice.
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> read_spans_;

  /// Marks the inputs of a piece as read; returns false if one of them was read before.
  bool read_once(Reads& reads, const SampleSpan& piece);
};

/// Adds a sample of `source`, with its `number` in the run, to the usage of the data set that it reads.
/// `sets` has one entry per entry of source.orders().
void add_usage(const SampleSource& source, std::int64_t sample, std::int64_t number,
               std::span<DatasetUsage* const> sets);

}  // namespace colonnade::data
