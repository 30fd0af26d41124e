// See context.h.
#include "colonnade/layers/context.h"

namespace colonnade::layers {

plan::Position Context::position() const {
  using plan::Axis;
  return plan::Position::on(Axis::kTp, tp.rank(), tp.size())
      .set(Axis::kEtp, experts.rank() % expert_tensor, expert_tensor)
      .set(Axis::kEp, experts.rank() / expert_tensor, experts.size() / expert_tensor);
}

plan::SequencePart Context::sequence_part() const {
  plan::SequencePart part{.context = cp.all.rank(), .contexts = cp.all.size()};
  if (sequence_parallel) part.part = tp.rank(), part.parts = tp.size();
  return part;
}

std::unique_ptr<tensor::Parameter> Context::make(const plan::ParamSpec& spec) const {
  auto parameter = std::make_unique<tensor::Parameter>(spec, position(), options);
  if (puts_off && spec.trained)
    parameter->put_off(draws ? std::optional(seed) : std::nullopt);
  else if (draws)
    parameter->initialize(seed);
  else
    parameter->value.detach().zero_();  // what fills up a vocabulary is in no checkpoint
  return parameter;
}

std::unique_ptr<tensor::Parameter> Context::make(const std::optional<plan::ParamSpec>& spec) const {
  return spec ? make(*spec) : nullptr;
}

void collect(std::vector<tensor::Parameter*>& all, std::initializer_list<tensor::Parameter*> some) {
  for (tensor::Parameter* parameter : some)
    if (parameter != nullptr) all.push_back(parameter);
}

}  // namespace colonnade::layers
