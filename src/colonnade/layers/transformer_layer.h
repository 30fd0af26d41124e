// One transformer layer as a block.
#pragma once

#include <optional>
#include <vector>

#include "colonnade/layers/attention.h"
#include "colonnade/layers/mixer.h"
#include "colonnade/layers/norm.h"
#include "colonnade/layers/residual.h"
#include "colonnade/layout/params/gpt.h"

namespace colonnade::layers {

/// Pre-LN layer, a sequence of sublayers x = x + drop(f post_norm(sum of mixer(norm(x)) over the sublayer's
/// mixers)), with the residual factor f, with the mixers of layout::LayerParams. With
/// --apply-residual-connection-post-layernorm the residual is norm(x) instead of x. This equals BERT's
/// post-LN layers when the first norm is that of the embeddings. Only sandwich norms have a post_norm, and
/// --no-input-norms leaves only these; the last encoder layer ends with a norm. Input, sums and output have
/// the dtype of the residual stream; norms return that of their weights, in which mixers compute.
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
  struct SublayerMixer {
    std::unique_ptr<Mixer> mixer;
    bool recompute;  ///< in the backward pass
  };
  struct Sublayer {
    std::optional<Norm> norm;
    std::vector<SublayerMixer> mixers;
    std::optional<Norm> post_norm;
    Residual residual;
  };
  /// post_norm(sum of mixer(in.normed)), where in.normed = norm(in.sum), without the last mixer's bias.
  [[nodiscard]] at::Tensor mix(const Sublayer& sublayer, const ops::AddNormOutput& in,
                               const at::Tensor& encoded, const tensor::Pass& pass) const;

  /// Residual + drop(y + bias), and the next sublayer's input; one fused kernel where there is neither bias
  /// nor dropout.
  [[nodiscard]] ops::AddNormOutput add_and_norm(const Sublayer& sublayer,
                                                const std::optional<Norm>& next_norm, const at::Tensor& y,
                                                tensor::Parameter* bias, const at::Tensor& residual,
                                                const tensor::Pass& pass) const;
  /// The input of mixers: `sum` through the norm, without one in the dtype of the weights.
  [[nodiscard]] at::Tensor normed(const std::optional<Norm>& norm, const at::Tensor& sum) const;

  at::ScalarType type_;  ///< of weights
  double residual_factor_;
  bool recompute_norms_;      ///< recomputed in the backward pass
  bool residual_after_norm_;  ///< --apply-residual-connection-post-layernorm
  std::vector<Sublayer> sublayers_;
  std::optional<Norm> final_norm_;
};

}  // namespace colonnade::layers
