// See optimizers.h.
#include "colonnade/config/optimizers.h"

#include <algorithm>

namespace colonnade::config {
namespace {

constexpr std::string_view kAdamStates[] = {"exp_avg", "exp_avg_sq"};
constexpr OptimizerSetting kAdamSettings[] = {
    {"adam_beta1", "the moments"}, {"adam_beta2", "the moments"}, {"adam_eps"}};

constexpr std::string_view kSgdStates[] = {"exp_avg"};
constexpr OptimizerSetting kSgdSettings[] = {{"sgd_momentum", "the momentum"}};

constexpr std::string_view kLionStates[] = {"exp_avg"};
constexpr OptimizerSetting kLionSettings[] = {{"lion_beta1"}, {"lion_beta2", "the momentum"}};

constexpr OptimizerTraits kOptimizers[] = {
    {OptimizerKind::kAdam, "adam", kAdamStates, kAdamSettings, [](const Optimizer&) { return false; }},
    {OptimizerKind::kSgd, "sgd", kSgdStates, kSgdSettings,
     [](const Optimizer& o) { return o.sgd_momentum == 0; }},
    {OptimizerKind::kLion, "lion", kLionStates, kLionSettings, [](const Optimizer&) { return false; }},
};

constexpr bool are_in_order() {
  for (std::size_t i = 0; i < std::size(kOptimizers); ++i)
    if (static_cast<std::size_t>(kOptimizers[i].kind) != i) return false;
  return true;
}
static_assert(are_in_order());

}  // namespace

std::span<const OptimizerTraits> optimizers() { return kOptimizers; }

const OptimizerTraits& traits_of(OptimizerKind kind) { return kOptimizers[static_cast<std::size_t>(kind)]; }

std::span<const std::string_view> optimizer_states(OptimizerKind kind, const Optimizer& settings) {
  const OptimizerTraits& traits = traits_of(kind);
  if (traits.is_stateless(settings)) return {};
  return traits.states;
}

std::vector<OptimizerSetting> optimizer_settings() {
  std::vector<OptimizerSetting> all;
  for (const OptimizerTraits& traits : kOptimizers)
    for (const OptimizerSetting& s : traits.settings)
      if (std::ranges::find(all, s.key, &OptimizerSetting::key) == all.end()) all.push_back(s);
  return all;
}

bool optimizer_reads(OptimizerKind kind, std::string_view key) {
  const auto settings = traits_of(kind).settings;
  return std::ranges::find(settings, key, &OptimizerSetting::key) != settings.end();
}

}  // namespace colonnade::config
