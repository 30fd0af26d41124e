// See context.h.
#include "colonnade/layers/context.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "colonnade/base/error.h"

namespace colonnade::layers {

layout::Position Context::position() const {
  using layout::Axis;
  return layout::Position::on(Axis::kTp, tp.rank(), tp.size())
      .set(Axis::kEtp, dispatch.rank() % etp, etp)
      .set(Axis::kEp, dispatch.rank() / etp, dispatch.size() / etp);
}

layout::SequenceShard Context::sequence_part() const {
  layout::SequenceShard part{.context = cp.all.rank(), .contexts = cp.all.size()};
  if (sequence_parallel) part.part = tp.rank(), part.parts = tp.size();
  return part;
}

std::unique_ptr<tensor::Parameter> Context::make(const layout::ParamSpec& spec) const {
  auto parameter = std::make_unique<tensor::Parameter>(spec, position(), options);
  if (deferred_init && spec.trained)
    parameter->defer_init(random_init ? std::optional(seed) : std::nullopt);
  else if (random_init)
    parameter->initialize(seed);
  else
    parameter->value.detach().zero_();  // vocabulary padding is in no checkpoint
  return parameter;
}

std::unique_ptr<tensor::Parameter> Context::make(const std::optional<layout::ParamSpec>& spec) const {
  return spec ? make(*spec) : nullptr;
}

LocalRows::LocalRows(const Context& context)
    : all_(context.cp.all), by_size_(context.cp.by_size), default_part_(context.sequence_part()) {}

const comm::Group& LocalRows::cp_group(const tensor::Batch& batch) const {
  if (by_size_.empty()) return all_;
  const auto found = by_size_.find(batch.share().ranks);
  COL_CHECK(
      found != by_size_.end(),
      "batch must name the number of ranks that share it with hybrid context parallelism; got {}; make it "
      "with job::sequence_batch",
      batch.share().ranks);
  return found->second;
}

layout::SequenceShard LocalRows::sequence_part(const tensor::Batch& batch) const {
  const comm::Group& group = cp_group(batch);
  layout::SequenceShard part = default_part_;
  part.context = group.rank(), part.contexts = group.size();
  return part;
}

at::Tensor LocalRows::padding(const tensor::Batch& batch, std::int64_t rows, at::Device device) const {
  if (batch.share().ranks == 0) return {};
  const layout::SequenceShard part = sequence_part(batch);
  at::Tensor padding;
  std::int64_t row = 0;
  for (const layout::TokenSpan& chunk : part.chunks(part.ranks() * rows)) {
    const std::int64_t tokens = std::clamp(batch.share().tokens - chunk.begin, std::int64_t{0}, chunk.length);
    if (tokens < chunk.length) {
      if (!padding.defined()) padding = at::zeros({rows}, at::dtype(at::kBool).device(device));
      padding.narrow(0, row + tokens, chunk.length - tokens).fill_(true);
    }
    row += chunk.length;
  }
  return padding;
}

void collect(std::vector<tensor::Parameter*>& all, std::initializer_list<tensor::Parameter*> some) {
  for (tensor::Parameter* parameter : some)
    if (parameter != nullptr) all.push_back(parameter);
}

}  // namespace colonnade::layers
