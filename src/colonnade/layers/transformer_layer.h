// One pre-norm transformer layer as a block.
#pragma once

#include "colonnade/layers/attention.h"
#include "colonnade/layers/cross_attention.h"
#include "colonnade/layers/latent_attention.h"
#include "colonnade/layers/mlp.h"
#include "colonnade/layers/moe/moe.h"
#include "colonnade/layers/residual.h"

namespace colonnade::layers {

/// h = x + drop(attention(norm(x))); y = h + drop(mlp(norm(h))). With
/// --apply-residual-connection-post-layernorm the sums have norm(x) and norm(h) in place of x and h: so
/// layers are those of BERT as published, each with its norms behind the sums, when the norm in front of the
/// first layer is that of the embeddings. Attention may be multi-latent, the MLP a mixture of experts. With
/// sandwich norms attention and MLP are followed by a norm each. A decoder's layer adds
/// drop(cross_attention(norm(h), encoded)) to h before the MLP; the last one of an encoder ends with a norm.
class TransformerLayer final : public tensor::Block {
 public:
  TransformerLayer(const layout::LayerParams& params, const config::Model& model, const Context& context,
                   std::shared_ptr<const ops::RotaryTable> rotary, std::int64_t layer,
                   const Sight& sight = {});
  at::Tensor forward(const at::Tensor& x, const tensor::Pass& pass) override { return forward(x, {}, pass); }
  /// `encoded`: what the encoder gives; undefined where there is none.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& encoded, const tensor::Pass& pass);
  std::vector<tensor::Parameter*> parameters() override;
  void finish_step() override;

 private:
  /// Attention's output over x normed, and that where the residual stream is what norms give.
  struct Attended {
    at::Tensor y, normed;
  };
  [[nodiscard]] Attended attend(const at::Tensor& x, const tensor::Pass& pass) const;
  /// The sum behind attention, and behind that to an encoder, with the MLP's norm of it.
  [[nodiscard]] ops::Added attend_and_add(const at::Tensor& x, const at::Tensor& encoded,
                                          const tensor::Pass& pass) const;
  /// A sub-layer's output added to the residual stream, and the next one's norm of the sum.
  static ops::Added join(const Residual& residual, const Norm& norm, const at::Tensor& y,
                         tensor::Parameter* bias, const at::Tensor& x, const tensor::Pass& pass);
  /// Attention to the encoder, between the sum behind attention and the MLP's norm.
  [[nodiscard]] ops::Added cross(const at::Tensor& attended, const at::Tensor& x, const at::Tensor& encoded,
                                 const tensor::Pass& pass) const;
  [[nodiscard]] at::Tensor feed_forward(const at::Tensor& normed, const tensor::Pass& pass) const;

  bool norms_again_, mlp_again_;  ///< made again in the backward pass
  bool adds_to_normed_;           ///< the residual stream is what norms give
  Norm input_norm_;
  std::unique_ptr<Attention> attention_;  ///< one of these two
  std::unique_ptr<LatentAttention> latent_;
  std::optional<Norm> post_attention_norm_;
  Norm mlp_norm_;
  std::unique_ptr<Mlp> mlp_;  ///< one of these two
  std::unique_ptr<Moe> moe_;
  std::optional<Norm> post_mlp_norm_;
  std::optional<Norm> final_norm_;
  Residual after_attention_, after_mlp_;
  /// Attention to an encoder, where there is one.
  struct Cross {
    Norm norm;
    CrossAttention attention;
    Residual after;
  };
  std::unique_ptr<Cross> cross_;
};

}  // namespace colonnade::layers
