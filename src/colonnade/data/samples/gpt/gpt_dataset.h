// Samples of GPT: S (+1) consecutive tokens of the shuffled sequences.
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

/// Samples of one data set. Memory: the indices, mapped from the cache if there is one.
class GptDataset final : public SampleSource {
 public:
  /// `key` holds Megatron's description and the fingerprint of the data; the plan becomes its settings.
  /// Throws DataError like build_gpt_index.
  GptDataset(std::shared_ptr<const TokenSource> source, const GptIndexPlan& plan, const IndexCache& cache,
             CacheKey key);

  [[nodiscard]] std::int64_t size() const override { return index_.shuffle.rows(); }
  void tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const override;
  [[nodiscard]] std::string name() const override { return source_->name(); }
  [[nodiscard]] std::vector<SampleOrder> orders() const override;
  [[nodiscard]] const GptIndex& index() const { return index_; }
  [[nodiscard]] const TokenSource& source() const { return *source_; }
  [[nodiscard]] std::vector<SampleSpan> spans(std::int64_t number) const override;
  void read(const SampleSpan& piece, std::span<std::int64_t> out) const override;
  void for_each_source(const SourceVisitor& visit) const override { visit(*source_, plan_.sequences); }

 private:
  std::shared_ptr<const TokenSource> source_;
  GptIndexPlan plan_;
  GptEpochs epochs_;
  GptIndex index_;
};

}  // namespace colonnade::data
