// Rules for the optimizer's update rule and the loss scale.
#include "colonnade/config/optimizers.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

Broken adam_betas(const Run& r) {
  const auto& o = r.optimizer;
  if (!config::optimizer_reads(o.optimizer, "adam_beta1") || (o.adam_beta1 < 1 && o.adam_beta2 < 1))
    return std::nullopt;
  return Finding{"--adam-beta1",
                 "and --adam-beta2 must be below 1",
                 fmt::format("{} and {}", o.adam_beta1, o.adam_beta2),
                 {{"adam_beta1", "0.9"}, {"adam_beta2", "0.999"}},
                 ""};
}

Broken adam_eps(const Run& r) {
  const auto& o = r.optimizer;
  if (!config::optimizer_reads(o.optimizer, "adam_eps") || o.adam_eps > 0) return std::nullopt;
  return Finding{"--adam-eps", "must be above 0", text(o.adam_eps), {{"adam_eps", "1e-08"}}, ""};
}

Broken lion_betas(const Run& r) {
  const auto& o = r.optimizer;
  if (!config::optimizer_reads(o.optimizer, "lion_beta1") || (o.lion_beta1 < 1 && o.lion_beta2 < 1))
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

constexpr Rule kOptimizer[] = {
    {"adam-betas", true, adam_betas, "adam_beta2=1",
     "A moment with beta 1 ignores all gradients, and its bias correction divides by 0."},
    {"adam-eps", true, adam_eps, "adam_eps=0",
     "The update of a weight that has had no gradient yet, such as an unseen token's row, would be 0 / 0."},
    {"lion-betas", true, lion_betas, "optimizer=lion; lion_beta2=1",
     "With --lion-beta2 1 the momentum stays 0; with --lion-beta1 1 an update ignores its own gradient."},
    {"loss-scale", true, loss_scale, "loss_scale=0", "Gradients are divided by the loss scale."},
};

}  // namespace

std::span<const Rule> optimizer_rules() { return kOptimizer; }

}  // namespace colonnade::rules
