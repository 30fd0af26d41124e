// Embedding block of a GPT.
#pragma once

#include <vector>

#include "colonnade/layers/embedding.h"
#include "colonnade/tensor/block.h"

namespace colonnade::models::gpt {

/// layers::Embedding of the batch's `tokens` [b, s]; ignores its input.
class EmbeddingBlock : public tensor::Block {
 public:
  EmbeddingBlock(const config::Model& model, const config::Parallel& parallel, const layers::Context& context)
      : embedding_(layout::embedding_params(model, parallel), model, context) {}
  at::Tensor forward(const at::Tensor&, const tensor::Pass& pass) override {
    return embedding_.forward(pass);
  }
  std::vector<tensor::Parameter*> parameters() override {
    std::vector<tensor::Parameter*> all;
    embedding_.add_parameters(all);
    return all;
  }
  [[nodiscard]] tensor::Parameter* word() const { return embedding_.word.get(); }

 protected:
  layers::Embedding embedding_;
};

}  // namespace colonnade::models::gpt
