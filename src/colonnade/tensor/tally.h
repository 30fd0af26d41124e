// What a step reports: sums with the number of things summed.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace colonnade::tensor {

/// A sum and the number of things summed, as float64 [2] on the device, so that no step waits for it:
/// reported values are sum / count over all micro-batches, stages and data-parallel ranks. It is on the
/// device of `sum`. Tensor ranks hold the same.
using Tally = at::Tensor;
Tally tally(const at::Tensor& sum, const at::Tensor& count);

/// By name: "lm_loss", "load_balancing_loss", ...
using Tallies = std::map<std::string, Tally>;
/// Adds `more` to what `all` has under its name.
void add(Tallies& all, const std::string& name, const Tally& more);

/// What the blocks of a rank and the loss report of a step.
struct Report {
  Tallies tallies;
  /// Numbers of things of which every rank has its own, by name: float64 of any shape on the device, summed
  /// over micro-batches and all ranks.
  std::map<std::string, at::Tensor> counts;
};

/// `x` where its values can be read. Of a meta tensor, in a dry run, all values are 0.
at::Tensor to_host(const at::Tensor& x);

}  // namespace colonnade::tensor
