// See block.h.
#include "colonnade/tensor/block.h"

namespace colonnade::tensor {

at::Tensor Stage::forward(at::Tensor x, const Pass& pass) const {
  for (const auto& block : blocks) {
    if (before_forward) before_forward(*block);
    at::Tensor y = block->forward(x, pass);
    if (after_forward) after_forward(*block, x, y);
    x = std::move(y);
  }
  return x;
}

std::vector<Parameter*> Stage::parameters() const {
  std::vector<Parameter*> all;
  for (const auto& block : blocks) {
    const auto own = block->parameters();
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

std::vector<Parameter*> Stage::trained_parameters() const {
  std::vector<Parameter*> all = parameters();
  std::erase_if(all, [](const Parameter* parameter) { return !parameter->spec.trained; });
  return all;
}

void Stage::finish_step() const {
  for (const auto& block : blocks) block->finish_step();
}

}  // namespace colonnade::tensor
