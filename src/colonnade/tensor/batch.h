// Batch: one micro-batch of tensors with typed keys, and the table of its fields.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/layout/attention_tiles.h"

namespace colonnade::tensor {

/// Fields of a batch: b samples, s tokens of a sample (of the decoder with an encoder), t tokens of the
/// encoder. The data step sets those that model and data have (job::to_batch). batch.cpp names them for
/// error messages and lists those that context parallelism shards along the sequence.
enum class Field : std::uint8_t {
  kTokens,          ///< int64 [b, s]
  kLabels,          ///< int64 [b, s], the correct outputs
  kLossMask,        ///< fp32 [b, s], weights of the losses per token
  kLossCount,       ///< fp32 [], sum of the loss mask over full sequences; set in context shards only
  kSamples,         ///< int64 [b], global sample indices, which select dropout masks
  kPositionIds,     ///< int64 [b, s]; without it positions are 0 .. s-1; required in context shards
  kCuSeqlens,       ///< int32 [documents + 1], document bounds of full sequences (Batch::set_documents)
  kPadding,         ///< bool [b, s], true: padding (BERT)
  kTokenTypes,      ///< int64 [b, s], segment of each token (BERT)
  kSwapped,         ///< int64 [b], 1: the sample's sentences are swapped; -100: they have no loss (BERT)
  kEncoderTokens,   ///< int64 [b, t] (T5)
  kEncoderPadding,  ///< bool [b, t], true: padding (T5)
};

/// Key of a tensor in a batch: a field, the field shifted by a depth, or a custom field.
class BatchKey {
 public:
  /// `depth` k > 0: the field shifted left by k, of which blocks that look k tokens ahead read tokens,
  /// labels, loss mask and loss count.
  constexpr BatchKey(Field field, std::int64_t depth = 0)  // NOLINT: implicit conversion from Field
      : field_(field), depth_(depth) {}
  /// Field of a custom model, declared once:
  ///   inline constexpr tensor::BatchKey kImage = tensor::BatchKey::custom("image");
  static consteval BatchKey custom(const char* name) { return BatchKey(name); }

  /// Name in error messages: tokens, tokens_ahead_2, image.
  [[nodiscard]] std::string name() const;
  /// Context parallelism shards the tensor along its dimension 1 (job::context_shard); false for custom
  /// fields.
  [[nodiscard]] bool is_sequence_sharded() const;
  friend auto operator<=>(const BatchKey&, const BatchKey&) = default;

 private:
  explicit constexpr BatchKey(std::string_view custom) : custom_(custom) {}

  std::optional<Field> field_;  ///< none: a custom field
  std::int64_t depth_ = 0;
  std::string_view custom_;  ///< a literal
};

/// Part of a sample that a batch of one row holds when the number of ranks per sequence depends on its length
/// (--hybrid-context-parallel): a sequence, or several short ones with their bounds (Batch::documents).
/// Blocks that mix tokens must then stay within the documents.
struct SequenceShare {
  int ranks = 0;            ///< ranks that share the sequence; 0: static context parallelism, full samples
  std::int64_t tokens = 0;  ///< tokens of the sequence; padding follows and is not counted
  std::int64_t begin = 0;   ///< position of its first token in the sample
  std::int64_t sample = 1;  ///< tokens of the sample
};

/// One micro-batch, on the device by the time a block reads it. With context parallelism s counts this rank's
/// tokens.
class Batch {
 public:
  Batch() = default;
  explicit Batch(std::map<BatchKey, at::Tensor> tensors) : tensors_(std::move(tensors)) {}
  /// Throws an Error that lists the existing keys.
  [[nodiscard]] const at::Tensor& at(const BatchKey& key) const;
  /// Undefined if the key is missing.
  [[nodiscard]] at::Tensor find(const BatchKey& key) const;
  void set(const BatchKey& key, at::Tensor tensor) { tensors_[key] = std::move(tensor); }
  [[nodiscard]] std::vector<BatchKey> keys() const;
  /// Tokens of a sample in all its sequences: s, or t + s. Throws without tokens.
  [[nodiscard]] std::int64_t tokens_per_sample() const;
  /// Set only with hybrid context parallelism (layers::ContextParallelGroups::by_size).
  [[nodiscard]] const SequenceShare& share() const { return share_; }
  void set_share(const SequenceShare& share) { share_ = share; }
  /// Documents of full sequences, which no query looks beyond; none: every row is one.
  [[nodiscard]] const layout::Documents& documents() const { return documents_; }
  /// Sets them with kCuSeqlens, the copy for kernels on the device.
  void set_documents(layout::Documents documents, at::Device device = at::kCPU);
  /// A copy with every tensor on `device`; tensors already there are shared.
  [[nodiscard]] Batch to(at::Device device) const;

 private:
  std::map<BatchKey, at::Tensor> tensors_;
  SequenceShare share_;
  layout::Documents documents_;
};

}  // namespace colonnade::tensor
