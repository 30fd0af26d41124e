// Rules for upcycling, the start of an MoE model from a dense checkpoint, and for latent experts. Faults that
// depend on the checkpoint are in job/upcycling.h.
#include <algorithm>

#include "colonnade/config/layer_pattern.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using BrokenUpcycling = std::optional<Finding>;

bool upcycles_experts(const Run& r) { return r.model.moe.use_upcycling && r.model.moe.num_experts > 0; }

/// FFN hidden size of the dense checkpoint.
std::int64_t dense_ffn(const Run& r) { return r.model.ffn_hidden_size * r.model.moe.upcycling_granularity; }

/// Experts that share the weights of one dense MLP; 0: the sizes do not divide.
std::int64_t experts_per_mlp(const Run& r) {
  const std::int64_t expert = r.model.moe.ffn_hidden_size;
  return expert > 0 && dense_ffn(r) % expert == 0 ? dense_ffn(r) / expert : 0;
}

BrokenUpcycling upcycling_without_experts(const Run& r) {
  if (!r.model.moe.use_upcycling || r.model.moe.num_experts > 0) return std::nullopt;
  return Finding{"--moe-use-upcycling",
                 "requires an MoE model (--num-experts)",
                 "true",
                 {{"moe_use_upcycling", "false"}},
                 "remove the flag, or add --num-experts"};
}

BrokenUpcycling upcycling_source(const Run& r) {
  if (!upcycles_experts(r) || !r.checkpoint.load.empty() || !r.checkpoint.pretrained_checkpoint.empty())
    return std::nullopt;
  return Finding{"--moe-use-upcycling",
                 "requires a dense checkpoint",
                 "true",
                 {{"moe_use_upcycling", "false"}},
                 "add --pretrained-checkpoint DIR, or remove the flag"};
}

BrokenUpcycling upcycling_ffn(const Run& r) {
  if (!upcycles_experts(r) || r.model.moe.ffn_hidden_size < 1 || experts_per_mlp(r) > 0) return std::nullopt;
  return Finding{"--moe-ffn-hidden-size",
                 "must divide the FFN hidden size of the dense checkpoint",
                 fmt::format("{} and {}", r.model.moe.ffn_hidden_size, dense_ffn(r)),
                 {{"moe_ffn_hidden_size", text(r.model.ffn_hidden_size)}},
                 ""};
}

BrokenUpcycling upcycling_experts(const Run& r) {
  const std::int64_t experts = r.model.moe.num_experts, parts = experts_per_mlp(r);
  if (!upcycles_experts(r) || parts == 0 || experts % parts == 0) return std::nullopt;
  return Finding{"--num-experts",
                 "must be a multiple of the experts that share one dense MLP",
                 fmt::format("{} experts and {} per MLP", experts, parts),
                 {{"num_experts", text(round_up(experts, parts))}},
                 ""};
}

BrokenUpcycling upcycling_dense_layers(const Run& r) {
  const config::Moe& moe = r.model.moe;
  if (!upcycles_experts(r) || moe.upcycling_granularity == 1 || r.model.num_layers < 1) return std::nullopt;
  const auto layers = config::expand_layer_freq(moe.layer_freq, r.model.num_layers);
  if (!layers || std::ranges::count(*layers, false) == 0) return std::nullopt;
  return Finding{"--moe-upcycling-granularity",
                 "must be 1 if some layers stay dense (--moe-layer-freq)",
                 fmt::format("{} and {}", moe.upcycling_granularity, moe.layer_freq),
                 {{"moe_upcycling_granularity", "1"}},
                 "set it to 1, and --moe-ffn-hidden-size to the size of the smaller experts"};
}

BrokenUpcycling upcycling_iteration(const Run& r) {
  if (!upcycles_experts(r) || !r.checkpoint.override_ckpt_iteration) return std::nullopt;
  return Finding{"--override-ckpt-iteration",
                 "is not supported with --moe-use-upcycling, which starts at iteration 0",
                 text(*r.checkpoint.override_ckpt_iteration),
                 {{"override_ckpt_iteration", "unset"}},
                 ""};
}

BrokenUpcycling upcycling_width(const Run& r) {
  if (!upcycles_experts(r) || r.model.moe.routed_size == 0) return std::nullopt;
  return Finding{"--moe-latent-size",
                 "is not supported with --moe-use-upcycling",
                 text(r.model.moe.routed_size),
                 {{"moe_latent_size", "0"}},
                 ""};
}

BrokenUpcycling latent_without_experts(const Run& r) {
  if (r.model.moe.routed_size == 0 || r.model.moe.num_experts > 0) return std::nullopt;
  return Finding{"--moe-latent-size",
                 "requires an MoE model (--num-experts)",
                 text(r.model.moe.routed_size),
                 {{"moe_latent_size", "0"}},
                 "remove the flag, or add --num-experts"};
}

constexpr Rule kExpertWeights[] = {
    {"upcycling-routed", true, upcycling_without_experts,
     "num_experts=0; moe_use_upcycling=true; pretrained_checkpoint=dense", "", "num_experts"},
    {"upcycling-source", true, upcycling_source, "moe_use_upcycling=true",
     "The experts start as copies of the MLPs of a dense checkpoint.",
     "load pretrained_checkpoint num_experts"},
    {"upcycling-width", true, upcycling_ffn,
     "moe_use_upcycling=true; pretrained_checkpoint=dense; moe_ffn_hidden_size=96",
     "A dense MLP is split evenly among experts.",
     "ffn_hidden_size hidden_size num_experts moe_use_upcycling moe_upcycling_granularity"},
    {"upcycling-count", true, upcycling_experts,
     "moe_use_upcycling=true; pretrained_checkpoint=dense; moe_ffn_hidden_size=16",
     "Every expert belongs to a complete copy of the dense MLP.",
     "ffn_hidden_size hidden_size moe_ffn_hidden_size moe_use_upcycling moe_upcycling_granularity"},
    {"upcycling-dense-layers", true, upcycling_dense_layers,
     "moe_use_upcycling=true; pretrained_checkpoint=dense; moe_upcycling_granularity=2; moe_layer_freq=2",
     "Dense layers have --ffn-hidden-size, which must then be that of the checkpoint.",
     "moe_layer_freq num_layers num_experts moe_use_upcycling"},
    {"upcycling-iteration", true, upcycling_iteration,
     "moe_use_upcycling=true; load=runs/dense; override_ckpt_iteration=3", "Upcycling reads weights only.",
     "num_experts moe_use_upcycling"},
    {"upcycling-latent", true, upcycling_width,
     "moe_use_upcycling=true; pretrained_checkpoint=dense; moe_latent_size=16",
     "The matrices of latent experts do not have the shapes of a dense MLP.",
     "num_experts moe_use_upcycling"},
    {"latent-experts", false, latent_without_experts, "num_experts=0; moe_latent_size=16", "", "num_experts"},
};

}  // namespace

std::span<const Rule> expert_weight_rules() { return kExpertWeights; }

}  // namespace colonnade::rules
