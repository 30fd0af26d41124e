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

/// The mixers of a layer in order of use: one line for each kind of mixer.
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

/// With --parallel-residual all mixers in one sublayer, else one in each.
std::vector<SublayerCost> make_sublayers(const Sequences& s, const Sizes& z, const LayerTraits& traits) {
  std::vector<SublayerCost> sublayers;
  for (std::unique_ptr<MixerCost>& mixer : make_mixers(s, z, traits)) {
    if (sublayers.empty() || !z.m.parallel_residual) sublayers.emplace_back();
    sublayers.back().push_back(std::move(mixer));
  }
  return sublayers;
}

/// Hidden states that mixers of a sublayer count for delayed weight gradients although an earlier one did.
std::int64_t states_counted_twice(const SublayerCost& sublayer) {
  std::int64_t inputs = 0, output_gradients = 0;
  for (const auto& mixer : sublayer) {
    const SharedForWgrad shared = mixer->shared_for_wgrad();
    inputs += shared.input ? 1 : 0;
    output_gradients += shared.output_gradient ? 1 : 0;
  }
  return std::max<std::int64_t>(inputs - 1, 0) + std::max<std::int64_t>(output_gradients - 1, 0);
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
    layer.rope = m.no_rope_freq.empty() ? m.has_rotary() : layout::has_rope(m, i);
    layer.window = one_window ? m.window_size : layout::attention_window(m, i);
    if (run.parallel.context_parallel_size > 1) layer.context = layout::context_layer(run.parallel, i);
  }
  return all;
}

LayerCost::LayerCost(const Sequences& sequences, const LayerTraits& traits)
    : BlockCost(sequences),
      layer_(sequences.all()[traits.sequence]),
      ends_sequence_(traits.ends_sequence),
      sublayers_(make_sublayers(sequences, layer_, traits)) {
  const std::int64_t statistics = norm_statistics(layer_.m, layer_.r);
  saved_ = other_sequence_bytes() + (ends_sequence_ ? layer_.stream + statistics : 0);
  for (const SublayerCost& sublayer : sublayers_) {
    // Without a norm, mixers save the residual sum, in their own dtype.
    saved_ += (layer_.m.input_norms ? norm_saved(layer_) : layer_.hidden) +
              (layer_.m.sandwich_norm ? layer_.hidden + statistics : 0);
    if (!layer_.sequence_parallel) wgrad_saved_ -= states_counted_twice(sublayer) * layer_.hidden;
    for (const auto& mixer : sublayer) {
      saved_ += mixer->saved();
      wgrad_saved_ += mixer->wgrad_saved();
    }
  }
  workspace_ = workspace(/*delay_wgrad=*/false);
  delayed_workspace_ = workspace(/*delay_wgrad=*/true);
}

/// The gradient of the residual stream throughout, and the sublayers in turn, the last one first. Later ones
/// have freed their activations, except those saved for delayed weight gradients.
LayerCost::Workspace LayerCost::workspace(bool delay_wgrad) const {
  LayerTracker tracker(layer_, delay_wgrad);
  if (ends_sequence_) {
    tracker.transient(layer_.stream + layer_.converted);
    tracker.release(layer_.stream);
  }
  for (auto sublayer = sublayers_.rbegin(); sublayer != sublayers_.rend(); ++sublayer) {
    tracker.start_sublayer(std::ssize(*sublayer));
    for (auto mixer = sublayer->rbegin(); mixer != sublayer->rend(); ++mixer) (*mixer)->backward(tracker);
  }
  return {sequences_.hidden() + tracker.peak(), sequences_.hidden() + tracker.after_own_group()};
}

void LayerCost::backward(StageTracker& tracker, std::int64_t other) const {
  const Workspace& workspace = tracker.delay_wgrad() ? delayed_workspace_ : workspace_;
  tracker.transient(other + workspace.peak);
  tracker.reduce_own_group(other + workspace.after_own_group);
  tracker.release(saved_, wgrad_saved_);
}

int LayerCost::forward_waits() const {
  int waits = 0;
  for_each_mixer([&](const MixerCost& mixer) { waits += mixer.forward_waits(); });
  return waits;
}

int LayerCost::backward_waits() const {
  int waits = 0;
  for_each_mixer([&](const MixerCost& mixer) { waits += mixer.backward_waits(); });
  return waits;
}

std::int64_t LayerCost::output_workspace() const {
  const SublayerCost& last = sublayers_.back();
  const std::int64_t summed = last.size() > 1 ? layer_.hidden : 0;
  return std::max(last.back()->output_workspace() + summed, layer_.hidden + sequences_.hidden());
}

std::int64_t LayerCost::largest_weight_gradient() const {
  std::int64_t largest = 0;
  for_each_mixer(
      [&](const MixerCost& mixer) { largest = std::max(largest, mixer.largest_weight_gradient()); });
  return largest;
}

/// A layer holds its input, the residual sum and the normed sum to its end, and in between the tensors of one
/// mixer after the other; the output of a row-parallel linear is unsharded before its reduce-scatter.
std::int64_t LayerCost::evaluation() const {
  std::int64_t largest = 0;
  for_each_mixer([&](const MixerCost& mixer) { largest = std::max(largest, mixer.evaluation()); });
  return largest + other_sequence_bytes();
}

void LayerCost::add_compute(AttentionKernel kernel, std::vector<RepeatedCompute>& parts) const {
  const RealSizes z(layer_);
  for (const SublayerCost& sublayer : sublayers_)
    for (const auto& mixer : sublayer) {
      BlockCompute compute = mixer->compute(kernel);
      if (mixer == sublayer.front()) {
        if (z.m.input_norms)
          add_norm(compute, z);
        else
          compute.add_elementwise(z.hidden + 2 * z.stream, z.hidden + 2 * z.stream, 1, 1);
        if (z.m.residual_factor != 1) compute.add_elementwise(2 * z.hidden, 2 * z.hidden, 1, 1);
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
  if (layer_.recomputes("layernorm") && layer_.m.input_norms) {
    const auto norms = static_cast<int>(sublayers_.size());
    parts.emplace_back().add_elementwise(norms * 2 * RealSizes(layer_).hidden, 0, norms, 0);
  }
  for_each_mixer([&](const MixerCost& mixer) { mixer.add_recomputed(kernel, parts); });
}

double LayerCost::parameters() const {
  double sum = 0;
  for_each_mixer([&](const MixerCost& mixer) { sum += mixer.parameters(); });
  return sum;
}

ForwardFlops LayerCost::flops() const {
  ForwardFlops sum;
  for_each_mixer([&](const MixerCost& mixer) { sum += mixer.flops(); });
  return sum;
}

ForwardFlops LayerCost::recomputed_flops() const {
  ForwardFlops sum;
  for_each_mixer([&](const MixerCost& mixer) { sum += mixer.recomputed_flops(); });
  return sum;
}

}  // namespace colonnade::cost
