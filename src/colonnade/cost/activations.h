// Activation memory of one micro-batch on one virtual stage, in bytes: tensors saved between forward and
// backward, and the workspace on top of them while a pass runs.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/layout/stages.h"

namespace colonnade::cost {

/// Bytes that one virtual stage saves between a micro-batch's forward and backward pass, with t tensor
/// ranks, n = s*b tokens, r = n/t with sequence parallelism and n without, e bytes per activation:
///   each layer  r h e 4 (inputs and outputs of two norms) + statistics, 4 r (LayerNorm 8 r) per norm
///               + n e (q + 2 kv)/t (before q/k norms another (q + kv)/t with their statistics)
///               + n e q/t 2 (attention output, in the kernel's layout and as [s, b, h]; once where the two
///               layouts agree: on CUDA with b = 1, on the CPU with one head)
///   MLA         the attention output once if its heads are narrower than query heads and the device is not
///               CUDA, v/t of values in place of the second kv, and for each latent of width w  r e w, with
///               q/k norms r e 2 w and statistics
///               + n 4 heads/t (log-sum-exp) + s^2 e (sliding-window mask; reset attention masks b s^2 e)
///               + n e ffn (2, gated 3)/t (fc1 and activation outputs)
///   MoE         in place of the last term, with E experts and R = r k etp rows, at most E C etp with a
///               capacity C (layout/expert_capacity.h), exactly that with padding:
///               R e (2 h + ffn (2, gated 3)/etp),
///               shared experts the same with n and t, router scores and top-k indices r (4 E + 8 k), and the
///               permutation indices: 16 R + 12 r k etp, over several ranks 16 R more for all-to-all, or
///               16 R + 12 r k ep etp for all-gather, and 8 per expert for token counts; with jitter and
///               shared experts r h e
///   attention dropout  the scores twice, 2 e b s^2 heads/t, and neither log-sum-exp nor mask
///   soft cap    the scores once more than the path without dropout, which then saves them once; so do sinks
///               on CUDA, with one more column
///   sandwich norms  r h e 2 + their statistics
///   embedding   learned positions 8 r
///   final norm  r h e 2 + statistics
///   MTP         with the final norm, per depth of D: 8 n (tokens) + r h e 3 + statistics of two norms
///               + a layer + another final norm; the last depth without its output, r h e, if the head is on
///               another stage
///   head        n e V/t (logits) + 8 n (12 n when t > 1; 8 n more when b > 1), per MTP depth the same and
///               12 n (labels, mask); (1 + D) r h e received from another stage
///               BERT: r h e 3 + statistics of a norm (language-model head transform)
///   no blocks   the input, r h e states_in; outputs still being sent count separately
///   (resident_message_bytes) recomputed  a recomputed span of layers saves its input alone, r h e; core_attn
///   saves nothing between
///               q, k, v and the attention output as [s, b, h]; layernorm saves no norm outputs; mlp, moe and
///               shared_experts save nothing; moe_act saves no activation output
/// A test compares it with the built model.
std::int64_t stage_activations(const config::Run& run, const layout::StageBlocks& stage);

/// Bytes that stay saved after a kBackwardInput until the weight gradients are computed: input and output
/// gradient of every linear layer, full sequences with sequence parallelism:
///   each layer  4 n h e (inputs of qkv and fc1, output gradients of proj and fc2)
///               + n e (2 q + 2 kv)/t + n e ffn (2, gated 3)/t (the other inputs and output gradients)
///   MoE         in place of fc1 and fc2: 4 r E (gradients of the router's logits) + 4 r h (its input, fp32),
///               + R e (2 h + ffn (2, gated 3)/etp), and for shared experts the terms of fc1 and fc2
///   MTP         for each depth 3 r h e and the terms of a layer
///   head        n h e + n e V/t (gradient of the logits), 1 + D times
/// A test compares it with the built model.
std::int64_t stage_wgrad_saved(const config::Run& run, const layout::StageBlocks& stage);

/// Bytes that data parallelism adds while one FSDP unit (block) computes, with sharded gradients or
/// parameters.
struct UnitBytes {
  std::int64_t forward = 0;          ///< unsharded parameters in a forward pass that saves nothing
  std::int64_t backward = 0;         ///< unsharded parameters and gradients in a backward pass
  std::int64_t backward_input = 0;   ///< the same in a pass that delays weight gradients
  std::int64_t backward_weight = 0;  ///< unsharded gradients while delayed weight gradients are computed
  std::int64_t reduce = 0;  ///< after a backward pass: unsharded gradients and the largest reduce-scatter
  std::int64_t reduce_experts =
      0;                           ///< the same once expert gradients are complete, with the dense parameters
  std::int64_t reduce_input = 0;   ///< the same after a pass that delays weight gradients
  std::int64_t reduce_weight = 0;  ///< the same after the delayed weight gradients
  std::int64_t kept_params = 0;    ///< parameters unsharded since the forward pass, freed after the backward
  std::int64_t pending_sum = 0;    ///< a partial sum that waits for its partner (--deterministic-mode)
  friend bool operator==(const UnitBytes&, const UnitBytes&) = default;
};

/// Peak workspace of a backward pass on top of all saved activations: gradients alive at once in the head, or
/// in a layer after the head's memory is freed, gathered sequences, and with 16-bit activations the weight
/// gradient before it is added to the main gradient; a recomputed span of layers. `delay_wgrad`: the pass
/// delays the weight gradients, and so did the later layers. `units`: by block; empty: nothing is sharded.
std::int64_t stage_workspace(const config::Run& run, const layout::StageBlocks& stage, bool delay_wgrad,
                             const std::vector<UnitBytes>& units = {});

/// Peak workspace of the delayed weight-gradient pass on top of the saved inputs. It runs block by block, the
/// last one first, and frees a block's inputs once its gradients are computed; with 16-bit activations it
/// holds the largest gradient before that is added to the main gradient.
std::int64_t stage_wgrad_workspace(const config::Run& run, const layout::StageBlocks& stage,
                                   const std::vector<UnitBytes>& units = {});

/// Bytes of the micro-batch itself: tokens, labels and loss mask, 20 per token, 8 more with position ids, and
/// b s^2 of an attention mask. It lives from a rank's first forward pass to its last.
std::int64_t batch_bytes(const config::Run& run);

/// Largest tensors alive at once in a forward pass that saves nothing, including the output.
std::int64_t stage_evaluation(const config::Run& run, const layout::StageBlocks& stage,
                              const std::vector<UnitBytes>& units = {});

/// Bytes of a pipeline message of one micro-batch. `states`: StageBlocks::states_out; 1 in an evaluation.
std::int64_t message_bytes(const config::Run& run, std::int64_t states);

}  // namespace colonnade::cost
