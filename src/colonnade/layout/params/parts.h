// Parameter structs common to all layers, and for_each over them.
#pragma once

#include <optional>

#include "colonnade/layout/param.h"

namespace colonnade::layout {

struct NormParams {
  ParamSpec weight;               ///< [h], or [d] for q and k norms, of all heads [n d]
  std::optional<ParamSpec> bias;  ///< LayerNorm only
};
struct LinearParams {
  ParamSpec weight;  ///< [out, in]
  std::optional<ParamSpec> bias;
};

/// Calls f(spec) for each existing parameter, in the order of the struct. Every parameter struct has an
/// overload.
template <typename F>
void for_each(const ParamSpec& spec, F&& f) {
  f(spec);
}
template <typename T, typename F>
void for_each(const std::optional<T>& part, F&& f) {
  if (part) for_each(*part, f);
}
template <typename F>
void for_each(const NormParams& p, F&& f) {
  for_each(p.weight, f);
  for_each(p.bias, f);
}
template <typename F>
void for_each(const LinearParams& p, F&& f) {
  for_each(p.weight, f);
  for_each(p.bias, f);
}

}  // namespace colonnade::layout
