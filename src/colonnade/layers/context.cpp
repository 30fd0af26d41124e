// See context.h.
#include "colonnade/layers/context.h"

#include <ATen/ops/zeros.h>

#include <algorithm>

#include "colonnade/base/error.h"

namespace colonnade::layers {

layout::Position Context::position() const {
  using layout::Axis;
  return layout::Position::on(Axis::kTp, tp.rank(), tp.size())
      .set(Axis::kEtp, experts.rank() % expert_tensor, expert_tensor)
      .set(Axis::kEp, experts.rank() / expert_tensor, experts.size() / expert_tensor);
}

layout::SequencePart Context::sequence_part() const {
  layout::SequencePart part{.context = cp.all.rank(), .contexts = cp.all.size()};
  if (sequence_parallel) part.part = tp.rank(), part.parts = tp.size();
  return part;
}

std::unique_ptr<tensor::Parameter> Context::make(const layout::ParamSpec& spec) const {
  auto parameter = std::make_unique<tensor::Parameter>(spec, position(), options);
  if (puts_off && spec.trained)
    parameter->put_off(draws ? std::optional(seed) : std::nullopt);
  else if (draws)
    parameter->initialize(seed);
  else
    parameter->value.detach().zero_();  // what fills up a vocabulary is in no checkpoint
  return parameter;
}

std::unique_ptr<tensor::Parameter> Context::make(const std::optional<layout::ParamSpec>& spec) const {
  return spec ? make(*spec) : nullptr;
}

SharedRows::SharedRows(const Context& context)
    : all_(context.cp.all), by_size_(context.cp.by_size), of_layout_(context.sequence_part()) {}

const comm::Group& SharedRows::others(const tensor::Batch& batch) const {
  if (by_size_.empty()) return all_;
  const auto found = by_size_.find(batch.share().ranks);
  COL_CHECK(
      found != by_size_.end(),
      "batch: where layers have groups of several sizes it must say how many ranks share it; got {}; make it "
      "with job::sequence_batch",
      batch.share().ranks);
  return found->second;
}

layout::SequencePart SharedRows::part(const tensor::Batch& batch) const {
  const comm::Group& group = others(batch);
  layout::SequencePart part = of_layout_;
  part.context = group.rank(), part.contexts = group.size();
  return part;
}

at::Tensor SharedRows::filling(const tensor::Batch& batch, std::int64_t rows, at::Device device) const {
  if (batch.share().ranks == 0) return {};
  const layout::SequencePart part = this->part(batch);
  at::Tensor filling;
  std::int64_t row = 0;
  for (const layout::Chunk& chunk : part.chunks(part.ranks() * rows)) {
    const std::int64_t held = std::clamp(batch.share().tokens - chunk.begin, std::int64_t{0}, chunk.length);
    if (held < chunk.length) {
      if (!filling.defined()) filling = at::zeros({rows}, at::dtype(at::kBool).device(device));
      filling.narrow(0, row + held, chunk.length - held).fill_(true);
    }
    row += chunk.length;
  }
  return filling;
}

void collect(std::vector<tensor::Parameter*>& all, std::initializer_list<tensor::Parameter*> some) {
  for (tensor::Parameter* parameter : some)
    if (parameter != nullptr) all.push_back(parameter);
}

}  // namespace colonnade::layers
