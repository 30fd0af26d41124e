// What a data set holds, and what is odd about it: `colonnade data inspect`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "colonnade/data/indexed/token_source.h"

namespace colonnade::data {

/// Lengths of documents in tokens, as a histogram: memory follows the number of different lengths.
class Lengths {
 public:
  void add(std::int64_t length);
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::int64_t empty() const { return between(0, 0); }
  [[nodiscard]] std::int64_t longer_than(std::int64_t length) const;
  /// The smallest length that at least `share` of all are not longer than; 0: the shortest, 1: the longest.
  [[nodiscard]] std::int64_t quantile(double share) const;

 private:
  /// Documents of `from` to `to` tokens, among the short ones.
  [[nodiscard]] std::int64_t between(std::int64_t from, std::int64_t to) const;
  std::vector<std::int64_t> short_;            // by length
  std::map<std::int64_t, std::int64_t> long_;  // by length
  std::int64_t count_ = 0;
};

Lengths document_lengths(const TokenSource& source);

/// What reading every token tells. Document numbers count from 0.
struct TokenFacts {
  std::int64_t highest = -1;                 ///< id; -1: there is no token
  std::int64_t beyond = 0;                   ///< tokens outside of the vocabulary
  std::optional<std::int64_t> first_beyond;  ///< the document of the first one
  std::int64_t unended = 0;                  ///< documents, but for empty ones, without the end at their end
  std::optional<std::int64_t> first_unended;
  std::int64_t repeated = 0;         ///< documents equal to an earlier one, empty ones apart
  std::int64_t repeated_tokens = 0;  ///< of these
  std::vector<std::pair<std::int64_t, std::int64_t>>
      repeats;  ///< up to ten of them: the first one, and again
};

struct TokenChecks {
  std::int64_t vocab_size = 0;  ///< ids are below it; 0: not checked
  std::int64_t eod = -1;        ///< what documents end with; -1: not checked
  std::int64_t memory = std::int64_t{1}
                        << 28;  ///< bytes for finding equal documents; more goes to temporary files
};

/// Reads every token once, and equal documents again. Two documents are equal when their sequences are.
/// Memory: checks.memory and a million tokens. Throws DataError as the source, Error where temporary files
/// cannot be written.
TokenFacts read_tokens(const TokenSource& source, const TokenChecks& checks);

}  // namespace colonnade::data
