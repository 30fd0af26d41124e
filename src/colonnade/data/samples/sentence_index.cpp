// See sentence_index.h.
#include "colonnade/data/samples/sentence_index.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "colonnade/base/error.h"
#include "colonnade/data/index_memory.h"

namespace colonnade::data {
namespace {

constexpr std::int64_t kLongSentence = 512;

/// Generator of the samples' target lengths.
class TargetLengths {
 public:
  explicit TargetLengths(const SentencePlan& plan)
      : draw_(plan.seed),
        max_(static_cast<std::uint32_t>(plan.max_length)),
        one_of_(plan.short_seq_prob > 0
                    ? static_cast<std::uint32_t>(std::min(std::round(1 / plan.short_seq_prob), 2147483647.0))
                    : 0) {}

  std::int64_t next() {
    if (one_of_ == 0) return max_;
    const auto value = static_cast<std::uint32_t>(draw_());
    return value % one_of_ == 0 ? 2 + value % (max_ - 1) : max_;
  }

 private:
  std::mt19937 draw_;
  std::uint32_t max_;
  std::uint32_t one_of_;  ///< draws per short length; 0: no short lengths
};

bool is_usable(const TokenSource& source, std::int64_t begin, std::int64_t end, const SentencePlan& plan) {
  if (end - begin < plan.min_sentences || end == begin) return false;
  if (end - begin == 1) return true;
  for (std::int64_t sentence = begin; sentence < end; ++sentence)
    if (source.length(sentence) > kLongSentence) return false;
  return true;
}

/// Calls emit(first, end, length, tokens) for each sample of a document, the sentences [begin, end).
template <typename Emit>
void walk_document(const TokenSource& source, std::int64_t begin, std::int64_t end, const SentencePlan& plan,
                   TargetLengths& lengths, const Emit& emit) {
  std::int64_t first = begin, tokens = 0;
  std::int64_t wanted = lengths.next();
  for (std::int64_t sentence = begin; sentence < end; ++sentence) {
    tokens += source.length(sentence);
    const std::int64_t left = end - sentence - 1;
    const bool full = tokens >= wanted && left > 1 && sentence + 1 - first >= plan.min_sentences;
    if (!full && left > 0) continue;
    emit(first, sentence + 1, wanted, tokens);
    first = sentence + 1;
    tokens = 0;
    wanted = lengths.next();  // drawn after the last sample as well
  }
}

/// Calls emit for all samples; returns the number of epochs.
template <typename Emit>
std::int64_t walk(const TokenSource& source, const SentencePlan& plan, const Emit& emit) {
  TargetLengths lengths(plan);
  std::int64_t samples = 0;
  for (std::int64_t epochs = 1;; ++epochs) {
    for (std::int64_t d = plan.documents.begin; d < plan.documents.end; ++d) {
      const std::int64_t begin = source.document_start(d);
      const std::int64_t end = source.document_start(d + 1);
      if (!is_usable(source, begin, end, plan)) continue;
      walk_document(source, begin, end, plan, lengths, [&](auto... sample) {
        ++samples;
        emit(sample...);
      });
    }
    if (!plan.num_samples || samples >= *plan.num_samples) return epochs;
  }
}

/// Number of unusable documents and of their tokens.
UnusedText unusable_text(const TokenSource& source, const SentencePlan& plan) {
  UnusedText unused;
  for (std::int64_t d = plan.documents.begin; d < plan.documents.end; ++d) {
    const std::int64_t begin = source.document_start(d), end = source.document_start(d + 1);
    if (is_usable(source, begin, end, plan)) continue;
    ++unused.documents;
    for (std::int64_t sentence = begin; sentence < end; ++sentence) unused.tokens += source.length(sentence);
  }
  return unused;
}

/// Checks the memory for three integers per sample.
template <typename Int>
void require_sentence_memory(std::int64_t samples, const TokenSource& source) {
  require_index_memory(source.name(), fmt::format("{} samples", samples),
                       3 * sizeof(Int) * static_cast<double>(samples));
}

template <typename Int>
SentenceIndex build(const TokenSource& source, const SentencePlan& plan) {
  require_sentence_memory<Int>(plan.num_samples.value_or(0), source);  // before counting that many
  std::int64_t samples = 0;  // counted first, so that the array never grows
  walk(source, plan, [&samples](auto...) { ++samples; });
  require_sentence_memory<Int>(samples, source);
  std::vector<Int> rows;
  rows.reserve(3 * static_cast<std::size_t>(samples));
  SentenceIndex index;
  index.unused = unusable_text(source, plan);
  index.epochs =
      walk(source, plan, [&](std::int64_t first, std::int64_t end, std::int64_t length, std::int64_t tokens) {
        for (const std::int64_t value : {first, end, length}) rows.push_back(static_cast<Int>(value));
        index.unused.truncated_tokens += std::max<std::int64_t>(tokens - length, 0);
      });
  std::mt19937_64 draw(std::uint64_t{plan.seed} + 1);
  const auto row = [&rows](std::uint64_t i) { return rows.begin() + static_cast<std::ptrdiff_t>(3 * i); };
  for (auto i = static_cast<std::uint64_t>(samples); i-- > 1;)
    std::swap_ranges(row(i), row(i + 1), row(draw() % (i + 1)));
  index.sample = IntArray(std::move(rows), 3);
  return index;
}

/// Throws DataError for a plan without any sample, for which the epochs would never end.
void require_samples(const TokenSource& source, const SentencePlan& plan) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  COL_CHECK(plan.documents.begin >= 0 && plan.documents.end <= source.num_documents() &&
                plan.max_length >= 2 && plan.max_length <= kMost,
            "{}: the plan must name documents 0 to {} and a length from 2 to {}; got {} to {} and {}",
            source.name(), source.num_documents(), kMost, plan.documents.begin, plan.documents.end,
            plan.max_length);
  if (count_usable_documents(source, plan) == 0)
    throw DataError(fmt::format(
        "{}: a document must have {} or more sentences, none of several longer than {} tokens; got no such "
        "document among {} to {}; add data, change --split, or give `colonnade preprocess` every text as a list "
        "of sentences",
        source.name(), plan.min_sentences, kLongSentence, plan.documents.begin, plan.documents.end));
}

/// Returns the counts; calls emit(first, end, length) for each sample.
template <typename Emit>
SentenceIndex count(const TokenSource& source, const SentencePlan& plan, const Emit& emit) {
  require_samples(source, plan);
  SentenceIndex index;
  index.unused = unusable_text(source, plan);
  index.epochs =
      walk(source, plan, [&](std::int64_t first, std::int64_t end, std::int64_t length, std::int64_t tokens) {
        index.unused.truncated_tokens += std::max<std::int64_t>(tokens - length, 0);
        emit(first, end, length);
      });
  return index;
}

bool needs_int64(const TokenSource& source) { return source.num_sequences() > std::int64_t{0xffffffff}; }

/// Hash of a row. The sum of the hashes identifies a set of rows in any order.
std::uint64_t row_hash(std::int64_t first, std::int64_t end, std::int64_t length) {
  std::uint64_t hash = 0;
  for (const std::int64_t value : {first, end, length}) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9e3779b97f4a7c15U;
    hash = (hash ^ (hash >> 29)) * 0xbf58476d1ce4e5b9U;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

std::int64_t count_usable_documents(const TokenSource& source, const SentencePlan& plan) {
  std::int64_t usable = 0;
  for (std::int64_t d = plan.documents.begin; d < plan.documents.end; ++d)
    if (is_usable(source, source.document_start(d), source.document_start(d + 1), plan)) ++usable;
  return usable;
}

SentenceIndex count_sentence_samples(const TokenSource& source, const SentencePlan& plan) {
  return count(source, plan, [](auto...) {});
}

SentenceIndex check_sentence_index(const TokenSource& source, const SentencePlan& plan,
                                   const IntArray& sample) {
  std::int64_t samples = 0;
  std::uint64_t expected = 0, got = 0;
  SentenceIndex index = count(source, plan, [&](std::int64_t first, std::int64_t end, std::int64_t length) {
    ++samples;
    expected += row_hash(first, end, length);
  });
  bool fits = sample.type() == (needs_int64(source) ? IntType::kInt64 : IntType::kUint32) &&
              sample.cols() == 3 && sample.rows() == samples;
  for (std::int64_t i = 0; fits && i < sample.size(); i += 3)
    got += row_hash(sample[i], sample[i + 1], sample[i + 2]);
  fits = fits && got == expected;
  if (!fits) throw DataError("its samples must match the data and the settings; got others");
  return index;
}

SentenceIndex build_sentence_index(const TokenSource& source, const SentencePlan& plan) {
  require_samples(source, plan);
  return needs_int64(source) ? build<std::int64_t>(source, plan) : build<std::uint32_t>(source, plan);
}

}  // namespace colonnade::data
