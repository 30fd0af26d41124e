// One transformer layer as a block.
#pragma once

#include "colonnade/layers/attention.h"
#include "colonnade/layers/cross_attention.h"
#include "colonnade/layers/latent_attention.h"
#include "colonnade/layers/mlp.h"
#include "colonnade/layers/moe/moe.h"
#include "colonnade/layers/residual.h"

namespace colonnade::layers {

/// Pre-LN layer: h = x + drop(attention(norm(x))); y = h + drop(mlp(norm(h))). With
/// --apply-residual-connection-post-layernorm the residuals are norm(x) and norm(h) instead of x and h. This
/// equals BERT's post-LN layers when the first norm is that of the embeddings. Attention may be multi-latent,
/// the MLP a mixture of experts. With sandwich norms a norm follows both attention and MLP. A decoder layer
/// adds drop(cross_attention(norm(h), encoded)) to h before the MLP; the last encoder layer ends with a norm.
class TransformerLayer final : public tensor::Block {
 public:
  TransformerLayer(const layout::LayerParams& params, const config::Model& model, const Context& context,
                   std::shared_ptr<const ops::RotaryTable> rotary, std::int64_t layer,
                   const MaskSpec& mask_spec = {});
  at::Tensor forward(const at::Tensor& x, const tensor::Pass& pass) override { return forward(x, {}, pass); }
  /// `encoded`: output of the encoder; undefined without one.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& encoded, const tensor::Pass& pass);
  std::vector<tensor::Parameter*> parameters() override;
  void finish_step() override;

 private:
  /// Output of attention and, with --apply-residual-connection-post-layernorm, its normed input.
  struct AttentionOutput {
    at::Tensor y, normed;
  };
  [[nodiscard]] AttentionOutput attend(const at::Tensor& x, const tensor::Pass& pass) const;
  /// Residual sum after attention (and cross-attention) and its pre-MLP norm.
  [[nodiscard]] ops::AddNormOutput attention_sublayer(const at::Tensor& x, const at::Tensor& encoded,
                                                      const tensor::Pass& pass) const;
  /// Bias-dropout-add of a sub-layer's output y to the residual x, and the norm of the sum.
  static ops::AddNormOutput add_and_norm(const Residual& residual, const Norm& norm, const at::Tensor& y,
                                         tensor::Parameter* bias, const at::Tensor& x,
                                         const tensor::Pass& pass);
  /// Cross-attention, between the residual sum after self-attention and the pre-MLP norm.
  [[nodiscard]] ops::AddNormOutput cross(const at::Tensor& attended, const at::Tensor& x,
                                         const at::Tensor& encoded, const tensor::Pass& pass) const;
  [[nodiscard]] at::Tensor mlp_forward(const at::Tensor& normed, const tensor::Pass& pass) const;

  bool recompute_norms_, recompute_mlp_;  ///< recomputed in the backward pass
  bool residual_after_norm_;              ///< --apply-residual-connection-post-layernorm
  Norm input_norm_;
  std::unique_ptr<Attention> attention_;  ///< exactly one of these two is set
  std::unique_ptr<LatentAttention> latent_;
  std::optional<Norm> post_attention_norm_;
  Norm mlp_norm_;
  std::unique_ptr<Mlp> mlp_;  ///< exactly one of these two is set
  std::unique_ptr<Moe> moe_;
  std::optional<Norm> post_mlp_norm_;
  std::optional<Norm> final_norm_;
  Residual attention_residual_, mlp_residual_;
  /// Cross-attention of a decoder layer.
  struct Cross {
    Norm norm;
    CrossAttention attention;
    Residual residual;
  };
  std::unique_ptr<Cross> cross_;
};

}  // namespace colonnade::layers
