// See prediction.h.
#include "colonnade/layers/prediction.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <fmt/format.h>

#include "colonnade/layers/embedding.h"
#include "colonnade/layers/recompute.h"
#include "colonnade/layout/recompute.h"

namespace colonnade::layers {
namespace {

/// x [b, s] one place earlier, `last` at the end.
at::Tensor shifted(const at::Tensor& x, double last) {
  const std::int64_t s = x.size(1);
  return at::cat({x.narrow(1, 1, s - 1), at::full({x.size(0), 1}, last, x.options())}, 1);
}

/// Where token j does not see token j - 1, or its position is 0.
at::Tensor starts_of(const tensor::Batch& batch) {
  const at::Tensor hidden = batch.find("attention_mask");
  const at::Tensor positions = batch.find("position_ids");
  if (!hidden.defined()) return positions.defined() ? positions == 0 : at::Tensor();
  const at::Tensor before = hidden.squeeze(1).diagonal(-1, 1, 2);
  return at::cat({at::ones({before.size(0), 1}, before.options()), before}, 1);
}

/// What put_into wrote; undefined where it did not.
at::Tensor written(const tensor::Batch& batch, const char* kind, std::int64_t k) {
  return batch.find(fmt::format("{}_ahead_{}", kind, k));
}

/// Of k + 1.
Ahead next(const Ahead& ahead) {
  Ahead later{shifted(ahead.tokens, 0), shifted(ahead.labels, 0), shifted(ahead.mask, 0), {}, {}, {}};
  if (ahead.starts.defined()) {
    later.starts = shifted(ahead.starts, 1);
    later.left = ahead.left.defined() ? ahead.left.bitwise_or(later.starts) : later.starts;
    later.mask.masked_fill_(later.left, 0);
  }
  later.count = later.mask.sum();
  return later;
}

}  // namespace

std::vector<Ahead> Ahead::all(const tensor::Batch& batch, std::int64_t depths) {
  std::vector<Ahead> all;
  if (depths == 0) return all;
  Ahead last{batch.at("tokens"), batch.at("labels"), batch.at("loss_mask"), starts_of(batch), {}, {}};
  for (std::int64_t k = 1; k <= depths; ++k) {
    const auto part = [&](const char* kind) { return written(batch, kind, k); };
    last = part("tokens").defined()
               ? Ahead{part("tokens"), part("labels"), part("loss_mask"), {}, {}, batch.find(count_name(k))}
               : next(last);
    all.push_back(last);
  }
  return all;
}

std::vector<at::Tensor> Ahead::all_tokens(const tensor::Batch& batch, std::int64_t depths) {
  std::vector<at::Tensor> all;
  at::Tensor last = batch.at("tokens");
  for (std::int64_t k = 1; k <= depths; ++k) {
    const at::Tensor part = written(batch, "tokens", k);
    all.push_back(last = part.defined() ? part : shifted(last, 0));
  }
  return all;
}

std::vector<std::string> Ahead::put_into(tensor::Batch& whole, std::int64_t depths) {
  std::vector<std::string> names;
  std::int64_t k = 0;
  for (const Ahead& ahead : all(whole, depths)) {
    ++k;
    for (const auto& [kind, tensor] :
         {std::pair{"tokens", ahead.tokens}, {"labels", ahead.labels}, {"loss_mask", ahead.mask}})
      whole.set(names.emplace_back(fmt::format("{}_ahead_{}", kind, k)), tensor);
    whole.set(count_name(k), ahead.count);
  }
  return names;
}

std::string Ahead::count_name(std::int64_t k) { return fmt::format("loss_count_ahead_{}", k); }

Prediction::Prediction(const layout::PredictionParams& params, const config::Model& model,
                       const Context& context, std::shared_ptr<const ops::RotaryTable> rotary,
                       std::int64_t layer)
    : enorm_(params.enorm, model, context),
      hnorm_(params.hnorm, model, context),
      eh_proj_(params.eh_proj, context),
      layer_(params.layer, model, context, std::move(rotary), layer),
      final_norm_(params.final_norm, model, context),
      dropout_(params.enorm.weight.name, model.hidden_dropout, context),
      tp_(context.tp),
      sequence_parallel_(context.sequence_parallel),
      again_(layout::makes_predictions_again(context.recompute)),
      scale_(embedding_scale(model, c10::typeMetaToScalarType(context.options.dtype()))) {}

at::Tensor Prediction::forward(const at::Tensor& hidden, const at::Tensor& tokens, tensor::Parameter& word,
                               const tensor::Pass& pass) {
  const at::Tensor embedded = dropout_.drop(word_rows(tokens, word, tp_, sequence_parallel_, scale_), pass);
  const at::Tensor both = at::cat({enorm_.forward(embedded), hnorm_.forward(hidden)}, -1);
  const auto run = [this](const Tensors& x, const tensor::Pass& now) {
    return layer_.forward(eh_proj_.forward(x[0]), now);
  };
  return final_norm_.forward(again_ ? recompute({both}, pass, run) : run({both}, pass));
}

void Prediction::add_parameters(std::vector<tensor::Parameter*>& all) {
  collect(all, {enorm_.weight.get(), enorm_.bias.get(), hnorm_.weight.get(), hnorm_.bias.get(),
                eh_proj_.weight.get()});
  const auto own = layer_.parameters();
  all.insert(all.end(), own.begin(), own.end());
  collect(all, {final_norm_.weight.get(), final_norm_.bias.get()});
}

}  // namespace colonnade::layers
