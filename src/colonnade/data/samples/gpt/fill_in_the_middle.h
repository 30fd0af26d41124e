// Fill-in-the-middle: documents are split into prefix, middle and suffix, and the middle moves to the end.
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
  double rate = 0.5;           ///< fraction of documents that are transformed
  double spm_rate = 0.5;       ///< fraction of these in suffix-prefix-middle order
  double fragment_rate = 0.5;  ///< fraction of transformed fragments in a document that contains `split`
  std::int64_t split = -1;     ///< separator id of fragments; -1: a document is one fragment
  std::string no_prefix;       ///< fragments that start with this text are not transformed; empty: none
  std::int64_t prefix = -1, middle = -1, suffix = -1;  ///< ids before the parts
  std::int64_t pad = -1;                               ///< pads a sample that became shorter
  std::int64_t eod = -1;                               ///< separator of documents
};

/// Resolves the token names of the settings. Throws ConfigError naming all tokens that the tokenizer lacks.
FimRules fim_rules(const config::FillInTheMiddle& settings, const tokenizers::Tokenizer& tokenizer);

/// Applies fill-in-the-middle to a sample and truncates or pads the result to the original length. Each
/// document (or each fragment of it, if it contains `split`) is transformed with the given rate: its text is
/// split at two random characters, and the three parts are encoded again as `preprocess` does, including
/// special tokens that the tokenizer adds around texts, and arranged as
///   prefix P suffix S middle M     or, with spm_rate,     prefix suffix S middle P M
/// An empty document loses its end of document, as in Megatron. Draws come from `random` in text order: equal
/// states give Megatron's sample. Throws DataError for ids unknown to the tokenizer.
std::vector<std::int64_t> fill_in_the_middle(std::span<const std::int64_t> sample, const FimRules& rules,
                                             const tokenizers::Tokenizer& tokenizer, RandomState& random);

/// Another source's samples after fill-in-the-middle. Sample i draws from its own RandomState(seed + i),
/// independent of what else is read; Megatron's data set uses one generator for everything that a process
/// reads.
class FimDataset final : public SampleSource {
 public:
  FimDataset(std::shared_ptr<const SampleSource> samples, FimRules rules,
             std::shared_ptr<const tokenizers::Tokenizer> tokenizer, std::uint32_t seed);

  [[nodiscard]] std::int64_t size() const override { return samples_->size(); }
  void tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const override;
  [[nodiscard]] std::string name() const override { return samples_->name(); }
  [[nodiscard]] std::vector<SampleOrder> orders() const override { return samples_->orders(); }
  /// Spans before the transform, as stored in the data. They do not contain the special ids, and the last
  /// tokens may have been truncated to make space for these.
  [[nodiscard]] std::vector<SampleSpan> spans(std::int64_t number) const override {
    return samples_->spans(number);
  }
  void read(const SampleSpan& piece, std::span<std::int64_t> out) const override {
    samples_->read(piece, out);
  }
  void for_each_source(const SourceVisitor& visit) const override { samples_->for_each_source(visit); }

 private:
  std::shared_ptr<const SampleSource> samples_;
  FimRules rules_;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;
  std::uint32_t seed_;
};

}  // namespace colonnade::data
