// Document lengths and token checks of a data set for `colonnade data inspect`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "colonnade/data/indexed/token_source.h"

namespace colonnade::data {

/// Histogram of document lengths in tokens; memory grows with the number of distinct lengths.
class LengthHistogram {
 public:
  void add(std::int64_t length);
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] std::int64_t empty() const { return between(0, 0); }
  [[nodiscard]] std::int64_t longer_than(std::int64_t length) const;
  /// The smallest length such that at least `share` of all documents are no longer; 0: minimum, 1: maximum.
  [[nodiscard]] std::int64_t quantile(double share) const;

 private:
  /// Number of short documents of `from` to `to` tokens.
  [[nodiscard]] std::int64_t between(std::int64_t from, std::int64_t to) const;
  std::vector<std::int64_t> short_;            // counts by length
  std::map<std::int64_t, std::int64_t> long_;  // counts by length
  std::int64_t count_ = 0;
};

LengthHistogram document_lengths(const TokenSource& source);

/// Results of scan_tokens. Document numbers start at 0.
struct TokenFacts {
  std::int64_t max_id = -1;                             ///< largest token id; -1 without tokens
  std::int64_t out_of_vocabulary = 0;                   ///< tokens outside the vocabulary
  std::optional<std::int64_t> first_out_of_vocabulary;  ///< document of the first of them
  std::int64_t without_eod = 0;                         ///< non-empty documents that do not end with eod
  std::optional<std::int64_t> first_without_eod;
  std::int64_t duplicates = 0;        ///< non-empty documents equal to an earlier one
  std::int64_t duplicate_tokens = 0;  ///< tokens of the duplicates
  std::vector<std::pair<std::int64_t, std::int64_t>> duplicate_pairs;  ///< up to ten: original and duplicate
};

struct TokenChecks {
  std::int64_t vocab_size = 0;                  ///< exclusive upper bound of ids; 0: not checked
  std::int64_t eod = -1;                        ///< last id of every document; -1: not checked
  std::int64_t memory = std::int64_t{1} << 28;  ///< bytes for document hashes; temporary files hold the rest
};

/// Reads every token once, and possible duplicates again to compare them. Documents are equal if all their
/// sequences are.
/// Memory: checks.memory and a million tokens. Throws DataError like the source, Error if temporary files are
/// not writable.
TokenFacts scan_tokens(const TokenSource& source, const TokenChecks& checks);

}  // namespace colonnade::data
