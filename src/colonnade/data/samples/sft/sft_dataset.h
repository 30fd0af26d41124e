// Samples of chat data: conversations packed into S + 1 tokens, or one conversation per sample.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "colonnade/data/index_cache.h"
#include "colonnade/data/indexed/token_source.h"
#include "colonnade/data/sample_source.h"
#include "colonnade/data/split.h"

namespace colonnade::data {

struct SftPlan {
  Range conversations;
  std::int64_t seq_length = 0;
  bool packed = false;
  std::optional<std::int64_t> num_samples;  ///< minimum number of samples; empty: one epoch
  std::uint32_t seed = 0;
};

/// The conversations of each sample. Every epoch reshuffles the conversations with additional draws of
/// RandomState(seed) and starts new samples, so the number of requested samples does not change the first
/// ones. With packing a conversation is added to the fullest of the 32 newest samples that has space for it,
/// or starts a new one.
struct SftIndex {
  IntArray members;  ///< conversations, sample by sample
  IntArray starts;   ///< start of each sample in `members`, and the end
};

/// Whether any conversation has an answer within S + 1 tokens.
bool has_usable_conversation(const TokenSource& source, const SftPlan& plan);

class SftDataset final : public SampleSource {
 public:
  /// Truncates conversations to S + 1 tokens and leaves out those without an answer in them, with a warning.
  /// Throws DataError if none remains, and ConfigError before packing if the samples exceed the memory.
  SftDataset(std::shared_ptr<const TokenSource> source, const SftPlan& plan, const IndexCache& cache,
             const std::string& fingerprint);

  [[nodiscard]] std::int64_t size() const override { return index_.starts.rows() - 1; }
  /// Flagged tokens of Conversations, then padding.
  void tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const override;
  [[nodiscard]] std::string name() const override { return source_->name(); }
  [[nodiscard]] std::vector<SampleOrder> orders() const override;
  [[nodiscard]] std::vector<SampleSpan> spans(std::int64_t number) const override;
  /// Ids without flags.
  void read(const SampleSpan& piece, std::span<std::int64_t> out) const override;
  /// Visits nothing: tokens of conversations carry flags (sft_conversations.h) and are not ids.
  void for_each_source(const SourceVisitor& /*visit*/) const override {}
  [[nodiscard]] const TokenSource& source() const { return *source_; }
  [[nodiscard]] const SftIndex& index() const { return index_; }

 private:
  [[nodiscard]] SftIndex build() const;

  std::shared_ptr<const TokenSource> source_;
  SftPlan plan_;
  SftIndex index_;
  std::int64_t num_epochs_ = 0;  // epochs over the conversations
};

}  // namespace colonnade::data
