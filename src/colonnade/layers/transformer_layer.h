// One pre-norm transformer layer as a block.
#pragma once

#include "colonnade/layers/attention.h"
#include "colonnade/layers/latent_attention.h"
#include "colonnade/layers/mlp.h"
#include "colonnade/layers/moe/moe.h"
#include "colonnade/layers/residual.h"

namespace colonnade::layers {

/// h = x + drop(attention(norm(x))); y = h + drop(mlp(norm(h))). Attention may be multi-latent, the MLP a
/// mixture of experts. With sandwich norms attention and MLP are followed by a norm each.
class TransformerLayer final : public tensor::Block {
 public:
  TransformerLayer(const plan::LayerParams& params, const config::Model& model, const Context& context,
                   std::shared_ptr<const ops::RotaryTable> rotary, std::int64_t layer);
  at::Tensor forward(const at::Tensor& x, const tensor::Pass& pass) override;
  std::vector<tensor::Parameter*> parameters() override;
  void finish_step() override;

 private:
  [[nodiscard]] at::Tensor attend(const at::Tensor& x, const tensor::Pass& pass) const;
  [[nodiscard]] at::Tensor feed_forward(const at::Tensor& normed, const tensor::Pass& pass) const;

  bool norms_again_, mlp_again_;  ///< made again in the backward pass
  Norm input_norm_;
  std::unique_ptr<Attention> attention_;  ///< one of these two
  std::unique_ptr<LatentAttention> latent_;
  std::optional<Norm> post_attention_norm_;
  Norm mlp_norm_;
  std::unique_ptr<Mlp> mlp_;  ///< one of these two
  std::unique_ptr<Moe> moe_;
  std::optional<Norm> post_mlp_norm_;
  Residual after_attention_, after_mlp_;
};

}  // namespace colonnade::layers
