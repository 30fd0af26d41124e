// Samples of a GPT: stretches of S (+1) tokens out of shuffled sequences.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "colonnade/data/index_cache.h"
#include "colonnade/data/indexed/token_source.h"
#include "colonnade/data/sample_source.h"
#include "colonnade/data/samples/gpt/gpt_index.h"

namespace colonnade::data {

/// Samples of one data set. Memory: the indices, mapped from the cache where there is one.
class GptDataset final : public SampleSource {
 public:
  /// `key`: Megatron's description, and the state of the data, to which the plan is added. Throws DataError
  /// as build_gpt_index.
  GptDataset(std::shared_ptr<const TokenSource> source, const GptIndexPlan& plan, const IndexCache& cache,
             CacheKey key);

  [[nodiscard]] std::int64_t size() const override { return index_.shuffle.rows(); }
  void tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const override;
  [[nodiscard]] std::string name() const override { return source_->name(); }
  [[nodiscard]] std::vector<SampleOrder> orders() const override;
  [[nodiscard]] const GptIndex& index() const { return index_; }
  [[nodiscard]] const TokenSource& source() const { return *source_; }
  [[nodiscard]] std::vector<SamplePiece> pieces(std::int64_t number) const override;
  void read(const SamplePiece& piece, std::span<std::int64_t> out) const override;
  void for_each_text(const TextVisitor& visit) const override { visit(*source_, plan_.sequences); }

 private:
  std::shared_ptr<const TokenSource> source_;
  GptIndexPlan plan_;
  GptEpochs epochs_;
  GptIndex index_;
};

}  // namespace colonnade::data
