// Samples of chat data: conversations packed into S + 1 tokens, or one in each.
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
  std::optional<std::int64_t> num_samples;  ///< at least; empty: one epoch
  std::uint32_t seed = 0;
};

/// The conversations of each sample. Every epoch shuffles the conversations anew, the draws of
/// RandomState(seed) going on, and gives whole samples: how many are asked for changes nothing in the first
/// ones. Where samples are packed a conversation goes into the fullest of the 32 newest samples that has room
/// for it, or begins another one.
struct SftIndex {
  IntArray members;  ///< conversations, sample by sample
  IntArray starts;   ///< where a sample begins among them; one more for the end
};

/// Whether a sample can be made: a conversation has an answer within S + 1 tokens.
bool has_usable_conversation(const TokenSource& source, const SftPlan& plan);

class SftDataset final : public SampleSource {
 public:
  /// Conversations longer than S + 1 tokens are cut there; those without an answer then, or before, are left
  /// out. A warning says how many. Throws DataError when none is left, and ConfigError, before it packs them,
  /// where samples are more than memory holds.
  SftDataset(std::shared_ptr<const TokenSource> source, const SftPlan& plan, const IndexCache& cache,
             const std::string& identity);

  [[nodiscard]] std::int64_t size() const override { return index_.starts.rows() - 1; }
  /// Tokens as Conversations gives them, and pads.
  void tokens(std::int64_t number, std::int64_t pad, std::span<std::int64_t> out) const override;
  [[nodiscard]] std::string name() const override { return source_->name(); }
  [[nodiscard]] std::vector<SampleOrder> orders() const override;
  [[nodiscard]] std::vector<SamplePiece> pieces(std::int64_t number) const override;
  /// Ids alone.
  void read(const SamplePiece& piece, std::span<std::int64_t> out) const override;
  /// Nothing: the tokens of conversations carry marks of answers (sft_conversations.h) and are no ids.
  void for_each_text(const TextVisitor& /*visit*/) const override {}
  [[nodiscard]] const TokenSource& source() const { return *source_; }
  [[nodiscard]] const SftIndex& index() const { return index_; }

 private:
  [[nodiscard]] SftIndex build() const;

  std::shared_ptr<const TokenSource> source_;
  SftPlan plan_;
  SftIndex index_;
  std::int64_t readings_ = 0;  // of each conversation, for all samples
};

}  // namespace colonnade::data
