// See block.h.
#include "colonnade/tensor/block.h"

#include "colonnade/base/error.h"

namespace colonnade::tensor {

const at::Tensor& Batch::at(const std::string& key) const {
  const auto found = tensors_.find(key);
  std::vector<std::string> keys;
  for (const auto& [name, tensor] : tensors_) keys.push_back(name);
  COL_CHECK(found != tensors_.end(),
            "batch must contain '{}', which a block reads; got {}; add it in the data step", key,
            fmt::join(keys, ", "));
  return found->second;
}

at::Tensor Batch::find(const std::string& key) const {
  const auto found = tensors_.find(key);
  return found == tensors_.end() ? at::Tensor() : found->second;
}

Batch Batch::to(at::Device device) const {
  Batch moved;
  moved.set_share(share_);
  for (const auto& [name, tensor] : tensors_) moved.set(name, tensor.defined() ? tensor.to(device) : tensor);
  return moved;
}

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
