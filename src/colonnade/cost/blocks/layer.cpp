// See layer.h.
#include "colonnade/cost/blocks/layer.h"

#include <algorithm>

#include "colonnade/cost/blocks/attention.h"
#include "colonnade/cost/blocks/cross_attention.h"
#include "colonnade/cost/blocks/latent_attention.h"
#include "colonnade/cost/blocks/mlp.h"
#include "colonnade/cost/blocks/moe.h"

namespace colonnade::cost {
namespace {

/// The mixers of a layer: one line for each kind of mixer.
std::vector<std::unique_ptr<MixerCost>> make_mixers(const Sequences& s, const Sizes& z,
                                                    const LayerTraits& traits) {
  std::vector<std::unique_ptr<MixerCost>> mixers;
  const layout::LayerKind& kind = traits.kind;
  if (kind.mixer == layout::Mixer::kAttention) mixers.push_back(std::make_unique<AttentionCost>(z, traits));
  if (kind.mixer == layout::Mixer::kLatentAttention)
    mixers.push_back(std::make_unique<LatentAttentionCost>(z, traits));
  if (kind.cross_attention) mixers.push_back(std::make_unique<CrossAttentionCost>(z, s.all().front()));
  if (kind.channel_mixer == layout::ChannelMixer::kMlp) mixers.push_back(std::make_unique<MlpCost>(z));
  if (kind.channel_mixer == layout::ChannelMixer::kMoe) mixers.push_back(std::make_unique<MoeCost>(z));
  return mixers;
}

}  // namespace

std::vector<LayerTraits> layer_traits(const config::Run& run) {
  const config::Model& m = run.model;
  const bool one_window = m.window_size == 0 || m.window_attn_skip_freq.empty();
  std::vector<LayerTraits> all;
  const std::vector<layout::LayerKind> kinds = layout::layer_kinds(m);
  for (std::int64_t i = 0; i <= m.total_layers(); ++i) {
    LayerTraits& layer = all.emplace_back();
    layer.kind = kinds[std::min(static_cast<std::size_t>(i), kinds.size() - 1)];
    layer.sequence = Sequences::of_layer(m, i);
    layer.ends_sequence = Sequences::of_layer(m, i + 1) != layer.sequence;
    layer.bidirectional = layout::is_bidirectional(m, i);
    layer.window = one_window ? m.window_size : layout::attention_window(m, i);
    if (run.parallel.context_parallel_size > 1) layer.context = layout::context_layer(run.parallel, i);
  }
  return all;
}

LayerCost::LayerCost(const Sequences& sequences, const LayerTraits& traits)
    : BlockCost(sequences),
      layer_(sequences.all()[traits.sequence]),
      ends_sequence_(traits.ends_sequence),
      mixers_(make_mixers(sequences, layer_, traits)),
      num_mixers_(static_cast<std::int64_t>(mixers_.size())),
      num_sublayers_(layer_.m.parallel_residual ? 1 : num_mixers_) {
  const std::int64_t norm = layer_.hidden + norm_statistics(layer_.m, layer_.r);
  saved_ = other_sequence_bytes() + (ends_sequence_ ? norm : 0);
  saved_ += num_sublayers_ * (norm_saved(layer_) + (layer_.m.sandwich_norm ? norm : 0));
  for (const auto& mixer : mixers_) {
    saved_ += mixer->saved();
    wgrad_saved_ += mixer->wgrad_saved();
  }
  if (!layer_.sequence_parallel) wgrad_saved_ -= states_held_twice() * layer_.hidden;
  workspace_ = workspace(/*delay_wgrad=*/false);
  delayed_workspace_ = workspace(/*delay_wgrad=*/true);
}

/// Hidden states that several mixers of a sublayer hold for their delayed weight gradients, beyond the first.
std::int64_t LayerCost::states_held_twice() const {
  const std::int64_t in_sublayer = num_mixers_ / num_sublayers_;
  std::int64_t inputs = 0, output_gradients = 0, twice = 0;
  for (std::int64_t i = 0; i < num_mixers_; ++i) {
    if (i % in_sublayer == 0) inputs = output_gradients = 0;
    const HeldForWgrad held = mixers_[static_cast<std::size_t>(i)]->held_for_wgrad();
    if (held.input && ++inputs > 1) ++twice;
    if (held.output_gradient && ++output_gradients > 1) ++twice;
  }
  return twice;
}

/// The gradient of the residual stream throughout, and the sublayers in turn, the last one first. Later ones
/// have freed their activations, except those saved for delayed weight gradients.
LayerCost::Workspace LayerCost::workspace(bool delay_wgrad) const {
  LayerTracker tracker(layer_, delay_wgrad);
  if (ends_sequence_) {
    tracker.transient(layer_.hidden);
    tracker.release(layer_.hidden);
  }
  const std::int64_t in_sublayer = num_mixers_ / num_sublayers_;
  for (std::int64_t i = num_mixers_ - 1; i >= 0; --i) {
    if ((i + 1) % in_sublayer == 0) tracker.start_sublayer(in_sublayer);
    mixers_[static_cast<std::size_t>(i)]->backward(tracker);
  }
  return {sequences_.hidden() + tracker.peak(), sequences_.hidden() + tracker.after_own_group()};
}

void LayerCost::backward(StageTracker& tracker, std::int64_t other) const {
  const Workspace& workspace = tracker.delay_wgrad() ? delayed_workspace_ : workspace_;
  tracker.transient(other + workspace.peak);
  tracker.reduce_own_group(other + workspace.after_own_group);
  tracker.release(saved_, wgrad_saved_);
}

std::int64_t LayerCost::output_workspace() const {
  const std::int64_t summed = num_mixers_ > num_sublayers_ ? layer_.hidden : 0;
  return std::max(mixers_.back()->output_workspace() + summed, layer_.hidden + sequences_.hidden());
}

std::int64_t LayerCost::largest_weight_gradient() const {
  std::int64_t largest = 0;
  for (const auto& mixer : mixers_) largest = std::max(largest, mixer->largest_weight_gradient());
  return largest;
}

/// A layer holds its input, the residual sum and the normed sum to its end, and in between the tensors of one
/// mixer after the other; the output of a row-parallel linear is unsharded before its reduce-scatter.
std::int64_t LayerCost::evaluation() const {
  std::int64_t largest = 0;
  for (const auto& mixer : mixers_) largest = std::max(largest, mixer->evaluation());
  return largest + other_sequence_bytes();
}

void LayerCost::add_compute(AttentionKernel kernel, std::vector<RepeatedCompute>& parts) const {
  const RealSizes z(layer_);
  const std::int64_t in_sublayer = num_mixers_ / num_sublayers_;
  for (std::int64_t i = 0; i < num_mixers_; ++i) {
    BlockCompute compute = mixers_[static_cast<std::size_t>(i)]->compute(kernel);
    if (i % in_sublayer == 0) {
      add_norm(compute, z);
      if (z.m.sandwich_norm) add_plain_norm(compute, z.hidden);
    } else {
      compute.add_elementwise(3 * z.hidden, 3 * z.hidden, 1, 1);  // sums of outputs and input gradients
    }
    parts.push_back({std::move(compute), 1, true});
  }
  BlockCompute end;
  if (sequences_.several()) {  // they are concatenated
    const double bytes = RealSizes::real(sequences_.hidden());
    end.add_elementwise(2 * bytes, 2 * bytes, 1, 1);
  }
  if (ends_sequence_) add_plain_norm(end, z.hidden);
  if (end.forward_kernels > 0) parts.push_back({end, 1, true});
}

void LayerCost::add_recomputed(AttentionKernel kernel, std::vector<BlockCompute>& parts) const {
  if (layer_.recomputes("layernorm")) {
    const double norms = RealSizes::real(num_sublayers_);
    parts.emplace_back().add_elementwise(norms * 2 * RealSizes(layer_).hidden, 0,
                                         static_cast<int>(num_sublayers_), 0);
  }
  for (const auto& mixer : mixers_) mixer->add_recomputed(kernel, parts);
}

double LayerCost::parameters() const {
  double sum = 0;
  for (const auto& mixer : mixers_) sum += mixer->parameters();
  return sum;
}

ForwardFlops LayerCost::flops() const {
  ForwardFlops sum;
  for (const auto& mixer : mixers_) sum += mixer->flops();
  return sum;
}

ForwardFlops LayerCost::recomputed_flops() const {
  ForwardFlops sum;
  for (const auto& mixer : mixers_) sum += mixer->recomputed_flops();
  return sum;
}

}  // namespace colonnade::cost
