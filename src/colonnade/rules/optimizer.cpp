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

Broken lion_betas(const Run& r) {
  const auto& o = r.optimizer;
  if (!config::optimizer_reads(o, "lion_beta1") || (o.lion_beta1 < 1 && o.lion_beta2 < 1))
    return std::nullopt;
  return Finding{"--lion-beta1",
                 "and --lion-beta2 must be below 1",
                 fmt::format("{} and {}", o.lion_beta1, o.lion_beta2),
                 {{"lion_beta1", "0.95"}, {"lion_beta2", "0.98"}},
                 ""};
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

/// Settings of dtypes below fp32.
constexpr const char* kDtypeKeys[] = {"main_grads_dtype", "main_params_dtype", "exp_avg_dtype",
                                      "exp_avg_sq_dtype"};

Broken optimizer_dtypes(const Run& r) {
  if (r.optimizer.use_precision_aware_optimizer) return std::nullopt;
  Finding found;
  for (const char* key : kDtypeKeys)
    found.add_if(r, config::text_of(r, config::setting(key)) != "fp32", key, "fp32");
  if (found.edits.empty()) return std::nullopt;
  found.rule = "requires --use-precision-aware-optimizer";
  found.edits = {{"use_precision_aware_optimizer", "true"}};
  return found;
}

Broken precision_aware_adam(const Run& r) {
  const auto& o = r.optimizer;
  if (!o.use_precision_aware_optimizer || o.optimizer == config::OptimizerKind::kAdam) return std::nullopt;
  return Finding{"--use-precision-aware-optimizer",
                 "requires --optimizer adam",
                 std::string(config::traits_of(o.optimizer).name),
                 {{"optimizer", "adam"}},
                 ""};
}

Broken main_grads(const Run& r) {
  if (r.optimizer.main_grads_dtype == config::Dtype::kFloat32 ||
      r.model.params_dtype == config::Dtype::kBfloat16)
    return std::nullopt;
  return Finding{"--main-grads-dtype bf16",
                 "requires --bf16",
                 std::string(config::name(r.model.params_dtype)) + " parameters",
                 {{"main_grads_dtype", "fp32"}},
                 "remove the flag, or add --bf16"};
}

Broken main_grads_reduction(const Run& r) {
  if (r.optimizer.main_grads_dtype == config::Dtype::kFloat32 ||
      !r.parallel.ddp_reduce_scatter_with_fp32_accumulation)
    return std::nullopt;
  return Finding{"--ddp-reduce-scatter-with-fp32-accumulation",
                 "is not supported with --main-grads-dtype bf16",
                 "both",
                 {{"ddp_reduce_scatter_with_fp32_accumulation", "false"}},
                 "remove the flag, or use --grad-reduce-in-bf16 with fp32 main gradients"};
}

Broken main_params(const Run& r) {
  if (r.optimizer.main_params_dtype == config::Dtype::kFloat32 ||
      r.model.params_dtype != config::Dtype::kFloat32)
    return std::nullopt;
  return Finding{"--main-params-dtype fp16",
                 "requires --bf16 or --fp16",
                 "fp32 parameters",
                 {{"main_params_dtype", "fp32"}},
                 "remove the flag, or add --bf16"};
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
  const config::OptimizerKind scalar = o.muon.scalar_optimizer;
  if (o.optimizer != config::OptimizerKind::kMuon || scalar == config::OptimizerKind::kAdam ||
      scalar == config::OptimizerKind::kLion)
    return std::nullopt;
  return Finding{"--muon-scalar-optimizer",
                 "must be adam or lion",
                 std::string(config::traits_of(scalar).name),
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

Broken qk_clip_alpha(const Run& r) {
  const auto& o = r.optimizer;
  if (!o.qk_clip || (o.qk_clip_alpha > 0 && o.qk_clip_alpha < 1)) return std::nullopt;
  return Finding{"--qk-clip-alpha",
                 "must be above 0 and below 1",
                 text(o.qk_clip_alpha),
                 {{"qk_clip_alpha", "0.5"}},
                 ""};
}

Broken qk_clip_threshold(const Run& r) {
  const auto& o = r.optimizer;
  if (!o.qk_clip || o.qk_clip_threshold > 0) return std::nullopt;
  return Finding{"--qk-clip-threshold",
                 "must be above 0",
                 text(o.qk_clip_threshold),
                 {{"qk_clip_threshold", "100"}},
                 ""};
}

/// Scores of normed heads do not depend on the scale of their rows, which would shrink at every step.
Broken qk_clip_norm(const Run& r) {
  const config::Model& m = r.model;
  if (!r.optimizer.qk_clip || m.latent.enabled || !(m.qk_layernorm || m.qk_l2_norm)) return std::nullopt;
  return Finding{"--qk-clip",
                 "is not supported with --qk-layernorm or --qk-l2-norm",
                 m.qk_layernorm ? "--qk-layernorm" : "--qk-l2-norm",
                 {{"qk_clip", "false"}},
                 "remove the flag; the norms bound the scores"};
}

/// Factors of muP that would remove embeddings, logits or scores.
Broken mup_factors(const Run& r) {
  const config::Model& m = r.model;
  if (!m.use_mup) return std::nullopt;
  Finding found{"", "must be above 0 with --use-mup", "", {}, ""};
  const auto add = [&](const char* key, double value) {
    if (value <= 0) found.add(config::setting(key), text(value), "1");
  };
  add("mup_embedding_mult", m.mup_embedding_mult);
  add("mup_output_mult", m.mup_output_mult);
  add("mup_base_head_dim", m.mup_base_head_dim.value_or(1));
  return found.edits.empty() ? Broken{} : found;
}

Broken mup_initialization(const Run& r) {
  const config::Model& m = r.model;
  if (!m.use_mup || !(m.init_method_xavier_uniform || m.output_layer_bias.value_or(false)))
    return std::nullopt;
  const bool xavier = m.init_method_xavier_uniform;
  return Finding{xavier ? "--init-method-xavier-uniform" : "--output-layer-bias",
                 "is not supported with --use-mup",
                 "both",
                 {{xavier ? "init_method_xavier_uniform" : "output_layer_bias", "false"}},
                 "remove the flag"};
}

constexpr Rule kOptimizer[] = {
    {"adam-betas", true, adam_betas, "adam_beta2=1",
     "A moment with beta 1 ignores all gradients, and its bias correction divides by 0."},
    {"adam-eps", true, adam_eps, "adam_eps=0",
     "The update of a weight that has had no gradient yet, such as an unseen token's row, would be 0 / 0."},
    {"lion-betas", true, lion_betas, "optimizer=lion; lion_beta2=1",
     "With --lion-beta2 1 the momentum stays 0; with --lion-beta1 1 an update ignores its own gradient."},
    {"optimizer-dtypes", true, optimizer_dtypes, "exp_avg_dtype=bf16",
     "As in Megatron, dtypes below fp32 must be requested as a whole.",
     "main_grads_dtype main_params_dtype exp_avg_dtype exp_avg_sq_dtype"},
    {"precision-aware-adam", true, precision_aware_adam, "use_precision_aware_optimizer=true; optimizer=sgd",
     "As in Megatron, only Adam stores its values in other dtypes than fp32."},
    {"main-grads-dtype", true, main_grads, "use_precision_aware_optimizer=true; main_grads_dtype=bf16",
     "Gradients of fp32 parameters need fp32, and fp16 gradients have another range.", "params_dtype"},
    {"main-grads-reduction", true, main_grads_reduction,
     "params_dtype=bf16; use_precision_aware_optimizer=true; main_grads_dtype=bf16; "
     "use_distributed_optimizer=true; ddp_reduce_scatter_with_fp32_accumulation=true",
     "The sum of the ranks' gradients would be rounded to bf16 again.", "main_grads_dtype"},
    {"main-params-dtype", true, main_params, "use_precision_aware_optimizer=true; main_params_dtype=fp16",
     "fp32 parameters are their own main parameters, and fp16 would be less precise.", "params_dtype"},
    {"muon-fp16", true, muon_fp16, "optimizer=muon; params_dtype=fp16",
     "Orthogonalized updates do not depend on the loss scale, so an overflow would go unnoticed in them."},
    {"muon-scalar-optimizer", true, muon_scalar_optimizer, "optimizer=muon; muon_scalar_optimizer=sgd",
     "As in Megatron, biases, norms and embeddings need an optimizer that adapts the step of each element."},
    {"muon-momentum", true, muon_momentum, "optimizer=muon; muon_momentum=1",
     "A momentum of 1 ignores all gradients."},
    {"muon-steps", true, muon_steps, "optimizer=muon; muon_coefficient_type=cubic5; muon_num_ns_steps=4",
     "The five cubic steps are optimized together; a prefix of them does not orthogonalize."},
    {"qk-clip-alpha", true, qk_clip_alpha, "qk_clip=true; qk_clip_alpha=1",
     "As in Megatron, queries and keys share the scale.", "qk_clip"},
    {"qk-clip-norm", true, qk_clip_norm, "qk_clip=true; qk_layernorm=true",
     "The scores of normed heads do not fall with their weights, which would shrink at every step.",
     "multi_latent_attention qk_layernorm qk_l2_norm"},
    {"mup-factors", true, mup_factors, "use_mup=true; mup_output_mult=0",
     "A factor of 0 removes embeddings, logits or scores.", "use_mup"},
    {"mup-initialization", true, mup_initialization, "use_mup=true; init_method_xavier_uniform=true",
     "muP sets the initial variance by width, and scales all of the logits.", "use_mup output_layer_bias"},
    {"qk-clip-threshold", true, qk_clip_threshold, "qk_clip=true; qk_clip_threshold=0",
     "A threshold of 0 would set the weights to 0.", "qk_clip"},
    {"loss-scale", true, loss_scale, "loss_scale=0", "Gradients are divided by the loss scale."},
};

}  // namespace

std::span<const Rule> optimizer_rules() { return kOptimizer; }

}  // namespace colonnade::rules
