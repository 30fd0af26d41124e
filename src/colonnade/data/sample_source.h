// Numbered samples: what batches are made of, from one data set or blended of several.
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

/// What decides the order of one data set's samples besides its tokens, the seed and the cut into samples.
/// Equal passes and last_apart give equal orders, however many samples are asked for.
struct SampleOrder {
  std::string name;
  std::int64_t tokens = 0;            ///< of one pass
  std::int64_t passes = 1;            ///< how often it is read for all samples
  bool last_apart = false;            ///< the last pass is shuffled on its own
  std::optional<std::int64_t> asked;  ///< samples that were asked for; empty: one pass
  Range sequences;                    ///< of the data set: the part that samples are made of
  /// How often it is read where `passes` does not say: more of them change no order of chat messages.
  std::optional<std::int64_t> readings;

  [[nodiscard]] std::int64_t epochs() const { return readings.value_or(passes); }
};

/// Tokens [offset, offset + length) of a sequence that a sample is made of.
struct SamplePiece {
  std::int64_t set = 0;  ///< the data set, as orders() counts them
  std::int64_t sequence = 0;
  std::int64_t of = 0;  ///< tokens of the whole sequence
  std::int64_t offset = 0;
  std::int64_t length = 0;
  std::int64_t labels = 0;  ///< tokens at its end that are labels alone; a GPT's next sample reads them
};

/// Called with a data set and the sequences of it that samples are made of.
using TextVisitor = std::function<void(const TokenSource&, Range)>;

/// Numbered samples of equal length. Const functions are safe to call from many threads.
class SampleSource {
 public:
  SampleSource() = default;
  SampleSource(const SampleSource&) = delete;
  SampleSource& operator=(const SampleSource&) = delete;
  virtual ~SampleSource() = default;

  [[nodiscard]] virtual std::int64_t size() const = 0;
  /// Writes the tokens of sample `number`; where the data ends early the rest becomes `pad`. out.size() is
  /// the length the source was made for. Throws DataError for a number that does not exist.
  virtual void tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const = 0;
  [[nodiscard]] virtual std::string name() const = 0;
  /// Of its data sets, in their order.
  [[nodiscard]] virtual std::vector<SampleOrder> orders() const = 0;
  /// Where the tokens of a sample lie, in the order of the data. Throws DataError for a number that does not
  /// exist and for indices that do not belong to the data.
  [[nodiscard]] virtual std::vector<SamplePiece> pieces(std::int64_t number) const = 0;
  /// The tokens of a piece as the data set has them; out.size() is its length. Throws as pieces.
  virtual void read(const SamplePiece& piece, std::span<std::int64_t> out) const = 0;
  /// Samples that have a loss of their own, one set behind the other: all of them, unless they are
  /// SampleSets.
  [[nodiscard]] virtual std::vector<Range> sets() const { return {{0, size()}}; }
  /// All that samples are made of, data set by data set; a blend may have one of them twice.
  virtual void for_each_text(const TextVisitor& visit) const = 0;
  /// How often its data is read for all samples; of a blend, that of the most read data set.
  [[nodiscard]] std::int64_t passes() const;

 protected:
  /// Throws DataError for a number that does not exist.
  void check_number(std::int64_t number) const;
};

/// Samples of several data sets in the order of a BlendIndex.
class BlendedDataset final : public SampleSource {
 public:
  /// Throws DataError when the index asks a data set for more samples than it has. The samples of a data set
  /// must come in ascending order.
  BlendedDataset(std::vector<std::shared_ptr<const SampleSource>> datasets, BlendIndex index);

  [[nodiscard]] std::int64_t size() const override { return index_.dataset.rows(); }
  void tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const override;
  [[nodiscard]] std::string name() const override;
  [[nodiscard]] std::vector<SampleOrder> orders() const override;
  [[nodiscard]] std::vector<SamplePiece> pieces(std::int64_t number) const override;
  void read(const SamplePiece& piece, std::span<std::int64_t> out) const override;
  void for_each_text(const TextVisitor& visit) const override;
  [[nodiscard]] const BlendIndex& index() const { return index_; }
  [[nodiscard]] const std::vector<std::shared_ptr<const SampleSource>>& datasets() const { return datasets_; }

 private:
  [[nodiscard]] std::size_t dataset_of(std::int64_t number) const;

  std::vector<std::shared_ptr<const SampleSource>> datasets_;
  BlendIndex index_;
};

/// Samples of several data sets, all of one behind all of another.
class SampleSets final : public SampleSource {
 public:
  explicit SampleSets(std::vector<std::shared_ptr<const SampleSource>> datasets);

  [[nodiscard]] std::int64_t size() const override { return sets_.empty() ? 0 : sets_.back().end; }
  void tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const override;
  [[nodiscard]] std::string name() const override;
  [[nodiscard]] std::vector<SampleOrder> orders() const override;
  [[nodiscard]] std::vector<SamplePiece> pieces(std::int64_t number) const override;
  void read(const SamplePiece& piece, std::span<std::int64_t> out) const override;
  void for_each_text(const TextVisitor& visit) const override;
  [[nodiscard]] std::vector<Range> sets() const override { return sets_; }

 private:
  [[nodiscard]] std::size_t set_of(std::int64_t number) const;

  std::vector<std::shared_ptr<const SampleSource>> datasets_;
  std::vector<Range> sets_;
};

}  // namespace colonnade::data
