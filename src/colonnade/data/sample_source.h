// Interface of numbered samples, of one data set or of several.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "colonnade/data/blend.h"
#include "colonnade/data/indexed/token_source.h"
#include "colonnade/data/split.h"

namespace colonnade::data {

/// Parameters of the sample order of one data set, besides its tokens, the seed and the sample length. Equal
/// `passes` and `separate_final_epoch` give equal orders, whatever the number of requested samples.
struct SampleOrder {
  std::string name;
  std::int64_t tokens = 0;            ///< tokens per epoch
  std::int64_t passes = 1;            ///< epochs that the order covers
  bool separate_final_epoch = false;  ///< the final epoch is shuffled separately
  std::optional<std::int64_t> asked;  ///< requested samples; empty: one epoch
  Range sequences;                    ///< sequences of the data set that samples are built from
  /// Number of epochs if it does not affect the order (chat data, whose `passes` is 1).
  std::optional<std::int64_t> num_epochs;

  [[nodiscard]] std::int64_t epochs() const { return num_epochs.value_or(passes); }
};

/// A span of a sample: tokens [offset, offset + length) of a sequence.
struct SampleSpan {
  std::int64_t set = 0;  ///< index of the data set in orders()
  std::int64_t sequence = 0;
  std::int64_t sequence_length = 0;
  std::int64_t offset = 0;
  std::int64_t length = 0;
  std::int64_t labels = 0;  ///< trailing tokens used as labels only; inputs of a GPT's next sample
};

/// Callback for a token source and the range of its sequences that samples are built from.
using SourceVisitor = std::function<void(const TokenSource&, Range)>;

/// Numbered samples of equal length. Const functions are thread-safe.
class SampleSource {
 public:
  SampleSource() = default;
  SampleSource(const SampleSource&) = delete;
  SampleSource& operator=(const SampleSource&) = delete;
  virtual ~SampleSource() = default;

  [[nodiscard]] virtual std::int64_t size() const = 0;
  /// Writes the tokens of sample `number`, padded with `pad` if the data end early. out.size() must be the
  /// sample length of the source. Throws DataError for a number out of range.
  virtual void tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const = 0;
  [[nodiscard]] virtual std::string name() const = 0;
  /// The order of each data set.
  [[nodiscard]] virtual std::vector<SampleOrder> orders() const = 0;
  /// Spans of the data that a sample is built from, in their order. Throws DataError for a number out of
  /// range and for indices that do not match the data.
  [[nodiscard]] virtual std::vector<SampleSpan> spans(std::int64_t number) const = 0;
  /// Reads the tokens of a span as stored in the data set; out.size() is its length. Throws like pieces.
  virtual void read(const SampleSpan& piece, std::span<std::int64_t> out) const = 0;
  /// Consecutive ranges of samples that report a validation loss each: one range, except for ConcatDataset.
  [[nodiscard]] virtual std::vector<Range> validation_sets() const { return {{0, size()}}; }
  /// Visits all token sources that samples are built from; a blend may contain the same one twice.
  virtual void for_each_source(const SourceVisitor& visit) const = 0;
  /// Epochs over the data that all samples take; the maximum over the data sets of a blend.
  [[nodiscard]] std::int64_t passes() const;

 protected:
  /// Throws DataError for a number out of range.
  void check_number(std::int64_t number) const;
};

/// Samples of several data sets in the order of a BlendIndex.
class BlendedDataset final : public SampleSource {
 public:
  /// Throws DataError if the index contains more samples of a data set than it has. The samples of each data
  /// set must be in ascending order.
  BlendedDataset(std::vector<std::shared_ptr<const SampleSource>> datasets, BlendIndex index);

  [[nodiscard]] std::int64_t size() const override { return index_.dataset.rows(); }
  void tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const override;
  [[nodiscard]] std::string name() const override;
  [[nodiscard]] std::vector<SampleOrder> orders() const override;
  [[nodiscard]] std::vector<SampleSpan> spans(std::int64_t number) const override;
  void read(const SampleSpan& piece, std::span<std::int64_t> out) const override;
  void for_each_source(const SourceVisitor& visit) const override;
  [[nodiscard]] const BlendIndex& index() const { return index_; }
  [[nodiscard]] const std::vector<std::shared_ptr<const SampleSource>>& datasets() const { return datasets_; }

 private:
  [[nodiscard]] std::size_t dataset_of(std::int64_t number) const;

  std::vector<std::shared_ptr<const SampleSource>> datasets_;
  BlendIndex index_;
};

/// Concatenated samples of several data sets.
class ConcatDataset final : public SampleSource {
 public:
  explicit ConcatDataset(std::vector<std::shared_ptr<const SampleSource>> datasets);

  [[nodiscard]] std::int64_t size() const override { return sets_.empty() ? 0 : sets_.back().end; }
  void tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const override;
  [[nodiscard]] std::string name() const override;
  [[nodiscard]] std::vector<SampleOrder> orders() const override;
  [[nodiscard]] std::vector<SampleSpan> spans(std::int64_t number) const override;
  void read(const SampleSpan& piece, std::span<std::int64_t> out) const override;
  void for_each_source(const SourceVisitor& visit) const override;
  [[nodiscard]] std::vector<Range> validation_sets() const override { return sets_; }

 private:
  [[nodiscard]] std::size_t set_of(std::int64_t number) const;

  std::vector<std::shared_ptr<const SampleSource>> datasets_;
  std::vector<Range> sets_;
};

}  // namespace colonnade::data
