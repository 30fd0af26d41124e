// Rules for the optimizer's update rule and the loss scale.
#include "colonnade/config/optimizers.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

Broken adam_betas(const Run& r) {
  const auto& o = r.optimizer;
  if (!config::optimizer_reads(o, "adam_beta1") || (o.adam_beta1 < 1 && o.adam_beta2 < 1))
    return std::nullopt;
  return Finding{"--adam-beta1",
                 "and --adam-beta2 must be below 1",
                 fmt::format("{} and {}", o.adam_beta1, o.adam_beta2),
                 {{"adam_beta1", "0.9"}, {"adam_beta2", "0.999"}},
                 ""};
}

Broken adam_eps(const Run& r) {
  const auto& o = r.optimizer;
  if (!config::optimizer_reads(o, "adam_eps") || o.adam_eps > 0) return std::nullopt;
  return Finding{"--adam-eps", "must be above 0", text(o.adam_eps), {{"adam_eps", "1e-08"}}, ""};
}

Broken loss_scale(const Run& r) {
  const auto& o = r.optimizer;
  if (o.min_loss_scale <= o.initial_loss_scale && o.loss_scale.value_or(1) > 0) return std::nullopt;
  return Finding{
      "--loss-scale",
      "must be above 0, and --min-loss-scale at most --initial-loss-scale",
      fmt::format("{}, {} and {}", o.loss_scale.value_or(1), o.min_loss_scale, o.initial_loss_scale),
      {{"loss_scale", "unset"}, {"min_loss_scale", "1"}, {"initial_loss_scale", "4294967296"}},
      ""};
}

/// Megatron rejects its emerging optimizers with fp16 too.
Broken muon_fp16(const Run& r) {
  if (r.optimizer.optimizer != config::OptimizerKind::kMuon ||
      r.model.params_dtype != config::Dtype::kFloat16)
    return std::nullopt;
  return Finding{
      "--optimizer", "muon is not supported with --fp16", "both", {{"params_dtype", "bf16"}}, "use --bf16"};
}

Broken muon_scalar_optimizer(const Run& r) {
  const auto& o = r.optimizer;
  if (o.optimizer != config::OptimizerKind::kMuon || o.muon.scalar_optimizer == config::OptimizerKind::kAdam)
    return std::nullopt;
  return Finding{"--muon-scalar-optimizer",
                 "must be adam",
                 std::string(config::traits_of(o.muon.scalar_optimizer).name),
                 {{"muon_scalar_optimizer", "adam"}},
                 ""};
}

Broken muon_momentum(const Run& r) {
  const auto& o = r.optimizer;
  if (o.optimizer != config::OptimizerKind::kMuon || o.muon.momentum < 1) return std::nullopt;
  return Finding{"--muon-momentum", "must be below 1", text(o.muon.momentum), {{"muon_momentum", "0.9"}}, ""};
}

/// The schedule of cubic5 has one set of coefficients per step.
Broken muon_steps(const Run& r) {
  constexpr int kSteps = 5;
  const config::Muon& m = r.optimizer.muon;
  if (r.optimizer.optimizer != config::OptimizerKind::kMuon ||
      m.coefficients != config::MuonCoefficients::kCubic5 || m.num_ns_steps == kSteps)
    return std::nullopt;
  return Finding{"--muon-num-ns-steps",
                 "must be 5 with --muon-coefficient-type cubic5",
                 text(std::int64_t{m.num_ns_steps}),
                 {{"muon_num_ns_steps", "5"}},
                 ""};
}

constexpr Rule kOptimizer[] = {
    {"adam-betas", true, adam_betas, "adam_beta2=1",
     "A moment with beta 1 ignores all gradients, and its bias correction divides by 0."},
    {"adam-eps", true, adam_eps, "adam_eps=0",
     "The update of a weight that has had no gradient yet, such as an unseen token's row, would be 0 / 0."},
    {"muon-fp16", true, muon_fp16, "optimizer=muon; params_dtype=fp16",
     "Orthogonalized updates do not depend on the loss scale, so an overflow would go unnoticed in them."},
    {"muon-scalar-optimizer", true, muon_scalar_optimizer, "optimizer=muon; muon_scalar_optimizer=sgd",
     "As in Megatron, biases, norms and embeddings need an optimizer that adapts the step of each element."},
    {"muon-momentum", true, muon_momentum, "optimizer=muon; muon_momentum=1",
     "A momentum of 1 ignores all gradients."},
    {"muon-steps", true, muon_steps, "optimizer=muon; muon_coefficient_type=cubic5; muon_num_ns_steps=4",
     "The five cubic steps are optimized together; a prefix of them does not orthogonalize."},
    {"loss-scale", true, loss_scale, "loss_scale=0", "Gradients are divided by the loss scale."},
};

}  // namespace

std::span<const Rule> optimizer_rules() { return kOptimizer; }

}  // namespace colonnade::rules
