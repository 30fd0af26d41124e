// Everything a layer is built with: its process groups and the dtype and device of its tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>

#include "colonnade/base/turns.h"
#include "colonnade/comm/group.h"
#include "colonnade/config/recompute.h"
#include "colonnade/layout/context_parallel.h"
#include "colonnade/tensor/block.h"
#include "colonnade/tensor/parameter.h"

namespace colonnade::layers {

/// Context-parallel groups of attention.
struct ContextParallelGroups {
  comm::Group all;
  comm::Group a2a, p2p;  ///< a2a+p2p: neighbouring ranks (a2a) and ranks of equal a2a position (p2p)
  /// Hybrid context parallelism: group by number of ranks that share a batch (tensor::Batch::share).
  std::map<int, comm::Group> by_size;
  config::Parallel parallel;  ///< settings that give each layer's communication type (layout::context_layer)
};

/// Shapes in layers: s sequence, b batch, h hidden, n heads, g query groups, d head, f ffn, v vocabulary.
struct Context {
  comm::Group tp;                  ///< ranks that share each layer's weights
  ContextParallelGroups cp;        ///< ranks that share each sequence
  bool sequence_parallel = false;  ///< activations between layers are [s / tp, b, h]
  at::TensorOptions options;       ///< dtype and device of parameters; layers compute in that of their input
  std::uint64_t seed = 1234;       ///< seed of initial values and dropout
  config::Recompute recompute;     ///< activations to recompute in the backward pass
  comm::Group dispatch;            ///< ep x etp ranks that tokens are dispatched to, etp fastest
  int etp = 1;                     ///< size of its etp axis
  /// With the executor: the all-to-all of tokens hands over to the other pass of a pair (pipeline/executor.h)
  std::shared_ptr<Turns> turns;
  comm::Group token_ranks;        ///< tp x cp x dp ranks, which together hold all tokens of a step
  bool random_init = true;        ///< random initial values; false: zeros until a checkpoint is loaded
  bool track_max_logits = false;  ///< self-attention reports tensor::Report::max_attention_logits
  bool deferred_init = false;     ///< values are initialized when the gradient buffers adopt the parameters

  /// Part of each sequence that this rank holds between layers.
  [[nodiscard]] layout::SequenceShard sequence_part() const;
  /// This rank's position on the tp, ep and etp axes.
  [[nodiscard]] layout::Position position() const;
  /// This rank's shard of `spec`.
  [[nodiscard]] std::unique_ptr<tensor::Parameter> make(const layout::ParamSpec& spec) const;
  [[nodiscard]] std::unique_ptr<tensor::Parameter> make(const std::optional<layout::ParamSpec>& spec) const;
};

/// Tokens of a batch's sequences that this rank holds between layers.
class LocalRows {
 public:
  explicit LocalRows(const Context& context);
  /// Ranks that share the sequences of `batch`. With hybrid context parallelism the batch must name their
  /// number (Batch::share), else throws Error.
  [[nodiscard]] const comm::Group& cp_group(const tensor::Batch& batch) const;
  [[nodiscard]] layout::SequenceShard sequence_part(const tensor::Batch& batch) const;
  /// bool [rows], true for padding rows; undefined without padding.
  [[nodiscard]] at::Tensor padding(const tensor::Batch& batch, std::int64_t rows, at::Device device) const;

 private:
  comm::Group all_;
  std::map<int, comm::Group> by_size_;
  layout::SequenceShard default_part_;
};

/// Appends the parameters that are not null.
void collect(std::vector<tensor::Parameter*>& all, std::initializer_list<tensor::Parameter*> some);

}  // namespace colonnade::layers
