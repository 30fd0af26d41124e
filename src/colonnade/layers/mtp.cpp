// See mtp.h.
#include "colonnade/layers/mtp.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "colonnade/layers/embedding.h"
#include "colonnade/layers/recompute.h"
#include "colonnade/layout/recompute.h"

namespace colonnade::layers {
namespace {

using tensor::Field;

/// x [b, s] shifted left by one, `fill` in the last column.
at::Tensor shifted(const at::Tensor& x, double fill) {
  const std::int64_t s = x.size(1);
  return at::cat({x.narrow(1, 1, s - 1), at::full({x.size(0), 1}, fill, x.options())}, 1);
}

/// Document starts, bool [b, s]: those of the batch's documents or, without them, tokens with position id 0.
at::Tensor starts_of(const tensor::Batch& batch) {
  const at::Tensor positions = batch.find(Field::kPositionIds);
  if (!batch.documents().any()) return positions.defined() ? positions == 0 : at::Tensor();
  const at::Tensor& tokens = batch.at(Field::kTokens);
  const at::Tensor starts = at::zeros({tokens.numel() + 1}, tokens.options().dtype(at::kBool));
  starts.index_fill_(0, batch.at(Field::kCuSeqlens).to(at::kLong), 1);
  return starts.narrow(0, 0, tokens.numel()).view(tokens.sizes());
}

/// Targets of k + 1 from those of k.
MtpTargets next(const MtpTargets& ahead) {
  MtpTargets following{
      shifted(ahead.tokens, 0), shifted(ahead.labels, 0), shifted(ahead.mask, 0), {}, {}, {}};
  if (ahead.starts.defined()) {
    following.starts = shifted(ahead.starts, 1);
    following.left = ahead.left.defined() ? ahead.left.bitwise_or(following.starts) : following.starts;
    following.mask.masked_fill_(following.left, 0);
  }
  following.count = following.mask.sum();
  return following;
}

}  // namespace

std::vector<MtpTargets> MtpTargets::all(const tensor::Batch& batch, std::int64_t depths) {
  std::vector<MtpTargets> all;
  if (depths == 0) return all;
  MtpTargets current{batch.at(Field::kTokens),
                     batch.at(Field::kLabels),
                     batch.at(Field::kLossMask),
                     starts_of(batch),
                     {},
                     {}};
  for (std::int64_t k = 1; k <= depths; ++k) {
    const auto stored = [&](Field field) { return batch.find({field, k}); };
    current = stored(Field::kTokens).defined() ? MtpTargets{.tokens = stored(Field::kTokens),
                                                            .labels = stored(Field::kLabels),
                                                            .mask = stored(Field::kLossMask),
                                                            .count = stored(Field::kLossCount)}
                                               : next(current);
    all.push_back(current);
  }
  return all;
}

std::vector<at::Tensor> MtpTargets::all_tokens(const tensor::Batch& batch, std::int64_t depths) {
  std::vector<at::Tensor> all;
  at::Tensor current = batch.at(Field::kTokens);
  for (std::int64_t k = 1; k <= depths; ++k) {
    const at::Tensor stored = batch.find({Field::kTokens, k});
    all.push_back(current = stored.defined() ? stored : shifted(current, 0));
  }
  return all;
}

void MtpTargets::add_to_batch(tensor::Batch& whole, std::int64_t depths) {
  std::int64_t k = 0;
  for (const MtpTargets& ahead : all(whole, depths)) {
    ++k;
    whole.set({Field::kTokens, k}, ahead.tokens);
    whole.set({Field::kLabels, k}, ahead.labels);
    whole.set({Field::kLossMask, k}, ahead.mask);
    whole.set({Field::kLossCount, k}, ahead.count);
  }
}

MtpLayer::MtpLayer(const layout::MtpLayerParams& params, const config::Model& model, const Context& context,
                   std::shared_ptr<const ops::RotaryTable> rotary, std::int64_t layer)
    : enorm_(params.enorm, model, context),
      hnorm_(params.hnorm, model, context),
      eh_proj_(params.eh_proj, context),
      layer_(params.layer, model, context, std::move(rotary), layer),
      final_norm_(params.final_norm, model, context),
      dropout_(params.enorm.weight.name, model.hidden_dropout, context),
      tp_(context.tp),
      sequence_parallel_(context.sequence_parallel),
      recompute_(layout::recomputes_mtp_layers(context.recompute)),
      scale_(embedding_scale(model, c10::typeMetaToScalarType(context.options.dtype())) *
             model.embedding_multiplier()),
      residual_type_(residual_type(model, c10::typeMetaToScalarType(context.options.dtype()))) {}

at::Tensor MtpLayer::forward(const at::Tensor& hidden, const at::Tensor& tokens, tensor::Parameter& word,
                             const tensor::Pass& pass) {
  const at::Tensor embedded =
      dropout_.drop(word_embeddings(tokens, word, tp_, sequence_parallel_, scale_).to(residual_type_), pass);
  const at::Tensor both = at::cat({enorm_.forward(embedded), hnorm_.forward(hidden)}, -1);
  const auto run = [this](const Tensors& x, const tensor::Pass& now) {
    return layer_.forward(eh_proj_.forward(x[0]).to(residual_type_), now);
  };
  return final_norm_.forward(recompute_ ? recompute({both}, pass, run) : run({both}, pass));
}

void MtpLayer::add_parameters(std::vector<tensor::Parameter*>& all) {
  collect(all, {enorm_.weight.get(), enorm_.bias.get(), hnorm_.weight.get(), hnorm_.bias.get(),
                eh_proj_.weight.get()});
  const auto own = layer_.parameters();
  all.insert(all.end(), own.begin(), own.end());
  collect(all, {final_norm_.weight.get(), final_norm_.bias.get()});
}

}  // namespace colonnade::layers
