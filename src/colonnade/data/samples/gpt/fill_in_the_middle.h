// Fill-in-the-middle: documents are cut in three and the middle moves to the end.
// Sources: Bavarian et al., arXiv:2207.14255; Megatron's training/datasets/fim_dataset.py.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "colonnade/config/fill_in_the_middle.h"
#include "colonnade/data/numpy_random.h"
#include "colonnade/data/sample_source.h"
#include "colonnade/tokenizers/tokenizer.h"

namespace colonnade::data {

struct FimRules {
  double rate = 0.5;           ///< share of documents that are cut
  double spm_rate = 0.5;       ///< share of these that begin with the suffix
  double fragment_rate = 0.5;  ///< share of the pieces of a document with `split` in it that are cut
  std::int64_t split = -1;     ///< id between pieces; -1: documents have one
  std::string no_prefix;       ///< text whose pieces are not cut where they begin with it; empty: none
  std::int64_t prefix = -1, middle = -1, suffix = -1;  ///< ids in front of the parts
  std::int64_t pad = -1;                               ///< fills a sample that became shorter
  std::int64_t eod = -1;                               ///< between documents
};

/// The rules that settings mean with a tokenizer. Throws ConfigError that names all tokens it lacks.
FimRules fim_rules(const config::FillInTheMiddle& settings, const tokenizers::Tokenizer& tokenizer);

/// The sample after fill-in-the-middle, as long as it was: what is longer is cut off, what is shorter filled
/// with the pad. Each document (and each piece of one, where `split` says so) is cut with its share: its text
/// is cut at two drawn characters, the three parts become ids again as `preprocess` makes them, special ids
/// that the tokenizer puts around texts included, and stand as
///   prefix P suffix S middle M     or, with spm_rate,     prefix suffix S middle P M
/// An empty document loses its end of document, as in Megatron. All draws are of `random`, in the order of
/// the text: with equal states this is Megatron's sample. Throws DataError for ids that are not the
/// tokenizer's.
std::vector<std::int64_t> fill_in_the_middle(std::span<const std::int64_t> sample, const FimRules& rules,
                                             const tokenizers::Tokenizer& tokenizer, RandomState& random);

/// Samples of another source after fill-in-the-middle. Sample i has RandomState(seed + i) of its own, so it
/// does not depend on what else is read; Megatron's data set has one for all that a process reads.
class FimDataset final : public SampleSource {
 public:
  FimDataset(std::shared_ptr<const SampleSource> samples, FimRules rules,
             std::shared_ptr<const tokenizers::Tokenizer> tokenizer, std::uint32_t seed);

  [[nodiscard]] std::int64_t size() const override { return samples_->size(); }
  void tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const override;
  [[nodiscard]] std::string name() const override { return samples_->name(); }
  [[nodiscard]] std::vector<SampleOrder> orders() const override { return samples_->orders(); }
  /// What was cut and moved, as it lies in the data: a sample's special ids are in no piece, and tokens at
  /// the end of the last pieces may have been cut off for them.
  [[nodiscard]] std::vector<SamplePiece> pieces(std::int64_t number) const override {
    return samples_->pieces(number);
  }
  void read(const SamplePiece& piece, std::span<std::int64_t> out) const override {
    samples_->read(piece, out);
  }
  void for_each_text(const TextVisitor& visit) const override { samples_->for_each_text(visit); }

 private:
  std::shared_ptr<const SampleSource> samples_;
  FimRules rules_;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;
  std::uint32_t seed_;
};

}  // namespace colonnade::data
