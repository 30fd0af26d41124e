// Which activations are not kept for the backward pass but made again in it. It never changes what is
// computed.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace colonnade::config {

/// Without a granularity nothing is made again.
struct Recompute {
  std::optional<std::string> granularity;            ///< --recompute-granularity selective|full
  std::vector<std::string> modules = {"core_attn"};  ///< --recompute-modules, with selective
  std::optional<std::string> method;                 ///< --recompute-method uniform|block, with full
  std::optional<int> num_layers;                     ///< --recompute-num-layers, with full
  bool distribute_saved = false;                     ///< --distribute-saved-activations

  [[nodiscard]] bool full() const { return granularity == "full"; }
  /// Whether the parts called `module` are made again, each by itself.
  [[nodiscard]] bool selects(const char* module) const {
    return granularity == "selective" && std::ranges::find(modules, module) != modules.end();
  }

  friend bool operator==(const Recompute&, const Recompute&) = default;
};

inline constexpr const char* kRecomputeModules[] = {"core_attn", "layernorm",   "mlp",           "moe_act",
                                                    "moe",       "mla_up_proj", "shared_experts"};

}  // namespace colonnade::config
