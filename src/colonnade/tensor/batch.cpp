// See batch.h.
#include "colonnade/tensor/batch.h"

#include <ATen/ops/empty.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "colonnade/base/error.h"

namespace colonnade::tensor {
namespace {

struct FieldProperties {
  Field field;
  std::string_view name;
  bool sequence_sharded = false;  ///< BatchKey::is_sequence_sharded
};

constexpr std::array kFields = {
    FieldProperties{Field::kTokens, "tokens", /*sequence_sharded=*/true},
    FieldProperties{Field::kLabels, "labels", /*sequence_sharded=*/true},
    FieldProperties{Field::kLossMask, "loss_mask", /*sequence_sharded=*/true},
    FieldProperties{Field::kLossCount, "loss_count"},
    FieldProperties{Field::kSamples, "samples"},
    FieldProperties{Field::kPositionIds, "position_ids", /*sequence_sharded=*/true},
    FieldProperties{Field::kCuSeqlens, "cu_seqlens"},
    FieldProperties{Field::kPadding, "padding"},
    FieldProperties{Field::kTokenTypes, "token_types"},
    FieldProperties{Field::kSwapped, "swapped"},
    FieldProperties{Field::kEncoderTokens, "encoder_tokens"},
    FieldProperties{Field::kEncoderPadding, "encoder_padding"},
};

constexpr bool rows_follow_the_enum() {
  for (std::size_t i = 0; i < kFields.size(); ++i)
    if (kFields[i].field != static_cast<Field>(i)) return false;
  return true;
}
static_assert(rows_follow_the_enum());

constexpr const FieldProperties& properties(Field field) { return kFields[static_cast<std::size_t>(field)]; }

std::vector<std::string> sorted_names(const std::vector<BatchKey>& keys) {
  std::vector<std::string> names;
  for (const BatchKey& key : keys) names.push_back(key.name());
  std::ranges::sort(names);
  return names;
}

}  // namespace

std::string BatchKey::name() const {
  const std::string_view name = field_ ? properties(*field_).name : custom_;
  return depth_ == 0 ? std::string(name) : fmt::format("{}_ahead_{}", name, depth_);
}

bool BatchKey::is_sequence_sharded() const { return field_ && properties(*field_).sequence_sharded; }

const at::Tensor& Batch::at(const BatchKey& key) const {
  const auto found = tensors_.find(key);
  COL_CHECK(found != tensors_.end(),
            "batch must contain '{}', which a block reads; got {}; add it in the data step", key.name(),
            fmt::join(sorted_names(keys()), ", "));
  return found->second;
}

at::Tensor Batch::find(const BatchKey& key) const {
  const auto found = tensors_.find(key);
  return found == tensors_.end() ? at::Tensor() : found->second;
}

std::vector<BatchKey> Batch::keys() const {
  std::vector<BatchKey> keys;
  for (const auto& [key, tensor] : tensors_) keys.push_back(key);
  return keys;
}

std::int64_t Batch::tokens_per_sample() const {
  const at::Tensor encoder = find(Field::kEncoderTokens);
  return at(Field::kTokens).size(1) + (encoder.defined() ? encoder.size(1) : 0);
}

void Batch::set_documents(layout::Documents documents, at::Device device) {
  documents_ = std::move(documents);
  const auto bounds = std::ssize(documents_.cu_seqlens);
  const at::Tensor host = at::empty({bounds}, at::kInt);
  std::ranges::copy(documents_.cu_seqlens, host.mutable_data_ptr<std::int32_t>());
  set(Field::kCuSeqlens, host.to(device));
}

Batch Batch::to(at::Device device) const {
  Batch moved;
  moved.share_ = share_;
  moved.documents_ = documents_;
  for (const auto& [key, tensor] : tensors_) moved.set(key, tensor.defined() ? tensor.to(device) : tensor);
  return moved;
}

}  // namespace colonnade::tensor
