// Memory during the backward pass of one transformer layer.
#pragma once

#include <algorithm>

#include "colonnade/cost/blocks/sizes.h"

namespace colonnade::cost {

/// Bytes alive during a layer's backward pass beyond the saved activations and the gradient of the residual
/// stream, with their peak. `now` is negative once more was freed than allocated. Mixers run their
/// backward pass on it, those of a sublayer after start_sublayer().
class LayerTracker {
 public:
  LayerTracker(const Sizes& z, bool delay_wgrad) : z_(z), delay_wgrad_(delay_wgrad) {}

  /// `bytes` alive for a moment on top of the current ones.
  void transient(std::int64_t bytes) { peak_ = std::max(peak_, now_ + bytes); }
  void allocate(std::int64_t bytes) { now_ += bytes; }
  void release(std::int64_t bytes) { now_ -= bytes; }

  /// The next `mixers` backward passes are those of one sublayer, which share the norm's output and the
  /// output gradient and sum their input gradients.
  void start_sublayer(std::int64_t mixers) {
    mixers_ = mixers;
    entered_ = 0;
  }
  /// Start of a mixer. In the first one of a sublayer: a recomputed norm's output; and the gradient of the
  /// residual stream becomes that of the mixers' output, through a conversion, dropout and a sandwich norm.
  void enter_mixer() {
    if (++entered_ > 1) return;
    if (z_.m.input_norms) allocate(z_.recomputed("layernorm", z_.hidden));
    if (copies_gradient()) allocate(z_.hidden);
    if (!z_.m.sandwich_norm) return;
    transient(z_.hidden);
    if (!copies_gradient()) allocate(z_.hidden);
    release(z_.hidden);  // the norm's input
  }
  /// Row-parallel linear with `input` bytes of input: input and weight gradients alongside the unsharded
  /// output gradient.
  void row_parallel(std::int64_t input, std::int64_t weight) {
    transient(z_.gathered + input + (delay_wgrad_ ? 0 : weight));
    allocate(input);
    if (delay_wgrad_)
      allocate(z_.gathered);
    else
      release(input);
  }
  /// The mixer has consumed the output gradient. `read`: by a linear layer, whose weight gradient may be
  /// delayed.
  void release_output_gradient(bool read) {
    if (is_last() && has_own_gradient() && !(read && saves_hidden())) release(z_.hidden);
  }
  /// Column-parallel linear with `output` bytes of output. With sequence parallelism its input is gathered
  /// again and its input gradient is reduce-scattered.
  void column_parallel(std::int64_t output, std::int64_t weight) {
    const std::int64_t added = delay_wgrad_ ? 0 : weight;
    if (z_.sequence_parallel) transient(2 * z_.gathered + z_.hidden);
    transient(z_.gathered + z_.hidden + added);
    allocate(z_.hidden);
    if (!delay_wgrad_) release(output);
    if (delay_wgrad_ && z_.sequence_parallel) allocate(z_.gathered);
    if (is_last() && !saves_hidden()) release(z_.hidden);  // its input
  }
  /// End of a mixer. After the last one of a sublayer: its norm, whose gradient replaces that of the residual
  /// stream; `read`: by a linear layer, as above.
  void leave_mixer(bool read) {
    if (!is_last()) return;
    release((mixers_ - 1) * z_.hidden);  // input gradients were summed
    transient(z_.stream);
    release((z_.m.input_norms ? z_.stream : 0) + z_.hidden);
    if (read && saves_hidden() && !has_own_gradient()) allocate(z_.hidden);
  }
  /// The layer's gradients of parameters with data-parallel replicas of their own (layout::ParamGroup) are
  /// complete and may be reduced.
  void complete_own_group() { after_own_group_ = now_; }

  [[nodiscard]] bool delay_wgrad() const { return delay_wgrad_; }
  [[nodiscard]] std::int64_t peak() const { return peak_; }
  /// Bytes alive at complete_own_group(); 0 without such parameters.
  [[nodiscard]] std::int64_t after_own_group() const { return after_own_group_; }

 private:
  [[nodiscard]] bool is_last() const { return entered_ == mixers_; }
  /// Whether a delayed weight gradient holds the linear's input or output gradient itself, not a gathered
  /// copy.
  [[nodiscard]] bool saves_hidden() const { return delay_wgrad_ && !z_.sequence_parallel; }
  /// Whether dropout, a factor or a conversion makes the gradient of the mixers' output a copy.
  [[nodiscard]] bool copies_gradient() const {
    return z_.m.hidden_dropout > 0 || z_.m.residual_factor != 1 || z_.converted > 0;
  }
  [[nodiscard]] bool has_own_gradient() const { return copies_gradient() || z_.m.sandwich_norm; }

  const Sizes& z_;
  bool delay_wgrad_;
  std::int64_t mixers_ = 1, entered_ = 0;  ///< mixers of the sublayer, and those entered so far
  std::int64_t now_ = 0, peak_ = 0, after_own_group_ = 0;
};

}  // namespace colonnade::cost
