// Activation recomputation: activations that are recomputed in the backward pass instead of saved. It never
// changes results.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace colonnade::config {

/// No recomputation if `granularity` is unset.
struct Recompute {
  std::optional<std::string> granularity;            ///< --recompute-granularity selective|full
  std::vector<std::string> modules = {"core_attn"};  ///< --recompute-modules, with selective
  std::optional<std::string> method;                 ///< --recompute-method uniform|block, with full
  std::optional<int> num_layers;                     ///< --recompute-num-layers, with full
  bool distribute_saved_activations = false;         ///< --distribute-saved-activations

  [[nodiscard]] bool is_full() const { return granularity == "full"; }
  /// Whether selective recomputation covers `module`.
  [[nodiscard]] bool recomputes(const char* module) const {
    return granularity == "selective" && std::ranges::find(modules, module) != modules.end();
  }

  friend bool operator==(const Recompute&, const Recompute&) = default;
};

/// Values of --recompute-modules.
inline constexpr const char* kRecomputeModules[] = {"core_attn", "layernorm",   "mlp",           "moe_act",
                                                    "moe",       "mla_up_proj", "shared_experts"};
/// Those with little compute per saved byte.
inline constexpr const char* kCheapRecomputeModules[] = {"layernorm", "moe_act", "mla_up_proj"};
/// Modules that read the micro-batch when they are recomputed.
inline constexpr const char* kBatchModules[] = {"core_attn", "mlp", "moe", "shared_experts"};

}  // namespace colonnade::config
