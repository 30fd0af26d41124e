// Bytes of one micro-batch on one virtual stage: what is kept between forward and backward, and what
// comes on top while a pass runs.
#pragma once

#include <cstdint>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/layout/stages.h"

namespace colonnade::cost {

/// Bytes that one virtual stage keeps from a micro-batch's forward until its backward, with t tensor
/// ranks, n = s*b tokens, r = n/t with sequence parallelism and n without, element size e:
///   each layer  r h e 4 (two norm inputs and outputs) + statistics of two norms, 4 r (LayerNorm 8 r) each
///               + n e (q + 2 kv)/t (before q/k norms another (q + kv)/t with their statistics)
///               + n e q/t 2 (attention output, as the kernel writes it and as [s, b, h]; once where both are
///               the same: on CUDA with b = 1, on the CPU with one head)
///   with multi-latent attention the output once in every case where its heads are narrower than queries' and
///               the device is not CUDA, v/t of values in place of the second kv, and for each narrow vector
///               of width w  r e w, with q/k norms r e 2 w and statistics
///               + n 4 heads/t (log-sum-exp) + s^2 e (the mask of a window, b s^2 e of reset attention masks)
///               + n e ffn (2, gated 3)/t (fc1 and activation outputs)
///   with experts instead of the last: R = r k etp rows (with a capacity of C (layout/expert_capacity.h) E C
///   etp at
///               most, filled up just as many), E experts: R e (2 h + ffn (2, gated 3)/etp), the same of
///               shared experts with n and t, scores and choices r (4 E + 8 k), and the rows' places: 16 R
///               + 12 r k etp, between ranks 16 R more by exchange, or 16 R + 12 r k ep etp by gathering, and
///               8 for each expert's count; with jitter and shared experts r h e
///   attention dropout keeps the scores twice, 2 e b s^2 heads/t, and neither log-sum-exp nor mask
///   a soft cap  once more than the path without dropout, which then keeps them once, as sinks on CUDA do
///               with one more column
///   sandwich norms  r h e 2 + their statistics
///   embedding   learned positions 8 r
///   final norm  r h e 2 + statistics
///               and for each of D further tokens 8 n (tokens) + r h e 3 + statistics of two norms + a layer
///               + the final norm's share again; the last one without its output, r h e, where the head is in
///               another stage
///   head        n e V/t (logits) + 8 n (12 n when t > 1; 8 n more when b > 1), for each further token as
///               much and 12 n (labels, mask); (1 + D) r h e that come from another stage
///               of BERT r h e 3 + statistics of a norm (what logits are made of)
///   no blocks   the input, r h e states_in; outputs on their way count apart (held_messages)
///   made again  of a stretch of layers only its input, r h e; of core_attn, not what lies between q, k, v
///               and the attention output as [s, b, h]; of layernorm, not the norms' outputs; of mlp, moe
///               and shared_experts nothing; of moe_act, not the activation's output
/// A test holds this to the built model.
std::int64_t stage_activations(const config::Run& run, const layout::StageBlocks& stage);

/// Bytes of it that stay after a kBackwardInput, with what that adds, until the weight gradients are
/// computed: input and output gradient of every product of a weight, whole sequences where these are cut:
///   each layer  4 n h e (inputs of qkv and fc1, output gradients of proj and fc2)
///               + n e (2 q + 2 kv)/t + n e ffn (2, gated 3)/t (the other inputs and output gradients)
///   experts     in place of fc1 and fc2: 4 r E (gradients of the router's logits) + 4 r h (its input, fp32),
///               + R e (2 h + ffn (2, gated 3)/etp), and of shared ones as of fc1 and fc2
///   further tokens  3 r h e and those of a layer
///   head        n h e + n e V/t (gradient of the logits), 1 + D times
/// A test holds this to the built model.
std::int64_t stage_waiting(const config::Run& run, const layout::StageBlocks& stage);

/// Bytes that data ranks add while one block computes, where gradients or parameters are cut by block.
struct UnitBytes {
  std::int64_t forward = 0;   ///< parameters that are whole in a pass that keeps nothing
  std::int64_t backward = 0;  ///< parameters and gradients that are whole in a backward pass
  std::int64_t input = 0;     ///< the same where the pass leaves weight gradients
  std::int64_t weights = 0;   ///< gradients that are whole while those that waited are computed
  std::int64_t landing = 0;   ///< behind a backward pass: whole gradients and the largest sum that arrives
  std::int64_t landing_experts = 0;  ///< the same when those of experts are complete, with other weights
  std::int64_t landing_input = 0;    ///< the same behind one that leaves weight gradients
  std::int64_t landing_weights = 0;  ///< the same behind those that waited
  std::int64_t stays = 0;            ///< whole values since the forward pass, which go with a backward pass
  std::int64_t summed = 0;           ///< a sum of its gradients that waits behind the pass for its like
  friend bool operator==(const UnitBytes&, const UnitBytes&) = default;
};

/// What a backward pass adds to everything kept, at most: gradients that live at once in the head or in
/// a layer after the head's memory is gone, gathered sequences, and with 16-bit parameters the weight
/// gradient before it is added to the fp32 one; a stretch of layers that is made again. `waits`: the pass
/// leaves the weight gradients, and the layers behind have left theirs. `units`: of each block; empty:
/// nothing is cut.
std::int64_t stage_working(const config::Run& run, const layout::StageBlocks& stage, bool waits,
                           const std::vector<UnitBytes>& units = {});

/// What computing the weight gradients that waited adds to what waits, at most: block by block, the last one
/// first, each block's products go when they are computed; with 16-bit parameters the largest gradient before
/// it is added to the fp32 one.
std::int64_t stage_weights_working(const config::Run& run, const layout::StageBlocks& stage,
                                   const std::vector<UnitBytes>& units = {});

/// Bytes of the micro-batch itself: tokens, labels and loss mask, 20 for each token, 8 more with positions,
/// and b s^2 of an attention mask. It is there from the first forward pass of a rank to its last.
std::int64_t batch_bytes(const config::Run& run);

/// Largest tensors alive at once in a forward pass that keeps nothing, the output with them.
std::int64_t stage_evaluation(const config::Run& run, const layout::StageBlocks& stage,
                              const std::vector<UnitBytes>& units = {});

/// Bytes of what one rank sends another for a micro-batch. `states`: StageBlocks::states_out, 1 in an
/// evaluation.
std::int64_t message_bytes(const config::Run& run, std::int64_t states);

/// Bytes of an element of parameters and activations.
std::int64_t element_size(const config::Model& model);

}  // namespace colonnade::cost
