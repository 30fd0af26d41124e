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
constexpr std::string_view kMuonStates[] = {"momentum_buffer"};
constexpr OptimizerSetting kMuonSettings[] = {{"muon_momentum", "the momentum"},
                                              {"muon_nesterov"},
                                              {"muon_split_qkv"},
                                              {"muon_split_gate_up"},
                                              {"muon_scale_mode"},
                                              {"muon_extra_scale_factor"},
                                              {"muon_coefficient_type"},
                                              {"muon_num_ns_steps"},
                                              {"muon_fp32_matmul_prec"},
                                              {"muon_tp_mode"},
                                              {"muon_scalar_optimizer", "the states of other parameters"}};

constexpr OptimizerTraits kOptimizers[] = {
    {OptimizerKind::kAdam, "adam", kAdamStates, kAdamSettings, [](const Optimizer&) { return false; }},
    {OptimizerKind::kSgd, "sgd", kSgdStates, kSgdSettings,
     [](const Optimizer& o) { return o.sgd_momentum == 0; }},
    {OptimizerKind::kLion, "lion", kLionStates, kLionSettings, [](const Optimizer&) { return false; }},
    {OptimizerKind::kMuon, "muon", kMuonStates, kMuonSettings, [](const Optimizer&) { return false; },
     /*updates_matrices=*/true},
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

std::vector<OptimizerKind> optimizer_kinds(const Optimizer& settings) {
  if (!traits_of(settings.optimizer).updates_matrices) return {settings.optimizer};
  return {settings.optimizer, settings.muon.scalar_optimizer};
}

bool optimizer_reads(const Optimizer& settings, std::string_view key) {
  return std::ranges::any_of(optimizer_kinds(settings), [key](OptimizerKind kind) {
    const auto read = traits_of(kind).settings;
    return std::ranges::find(read, key, &OptimizerSetting::key) != read.end();
  });
}

}  // namespace colonnade::config
