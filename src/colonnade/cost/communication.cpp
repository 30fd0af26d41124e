// Bytes of collectives and pipeline messages.
#include "colonnade/cost/communication.h"

#include <algorithm>
#include <utility>

#include "colonnade/cost/activations.h"
#include "colonnade/cost/activations/sizes.h"
#include "colonnade/cost/block_cost.h"
#include "colonnade/cost/flops.h"
#include "colonnade/cost/memory.h"
#include "colonnade/layout/buckets.h"
#include "colonnade/layout/context_groups.h"
#include "colonnade/layout/context_parallel.h"
#include "colonnade/layout/mesh.h"
#include "colonnade/layout/param.h"
#include "colonnade/layout/recompute.h"

namespace colonnade::cost {
namespace {

using layout::BlockKind;

/// Bytes sent per rank by an all-gather or reduce-scatter of `bytes` over `ranks`.
double ring_bytes(double bytes, int ranks) { return bytes * (ranks - 1) / ranks; }

/// Bytes of one element of an activation.
double activation_element(const config::Run& run) {
  return static_cast<double>(config::bytes(config::dtypes_of(run).activation));
}

/// Bytes of one hidden state between layers.
double activation_bytes(const config::Run& run) {
  const double rows = static_cast<double>(run.training.micro_batch_size * run.training.seq_length) /
                      run.parallel.context_parallel_size;
  return rows * static_cast<double>(run.model.hidden_size) * activation_element(run);
}

/// Input of the tensor-parallel region of attention, relative to a hidden state: gathered in each direction,
/// and gathered again for weight gradients. With MLA the latents and the rotary key channels are gathered, or
/// have their gradients all-reduced.
struct AttentionInput {
  double gathered = 1, regathered = 1;
};
AttentionInput attention_input(const config::Model& m) {
  if (!m.latent.enabled) return {};
  const auto h = static_cast<double>(m.hidden_size);
  const double queries = m.latent.q_lora_rank > 0 ? static_cast<double>(m.latent.q_lora_rank) : h;
  const double vectors = queries + static_cast<double>(m.latent.kv_lora_rank);
  return {.gathered = (vectors + static_cast<double>(m.latent.qk_pos_emb_head_dim)) / h,
          .regathered = vectors / h};
}

/// Tensor-parallel bytes of one micro-batch. A layer opens and closes two parallel regions (MoE layers only
/// one for shared experts), the embedding closes one, the head opens one, and each MTP depth does all three.
/// With sequence parallelism a region's input is gathered again for its weight gradients. Recomputed regions
/// repeat their forward collectives. A binary head gathers the first token of each sequence.
double tensor_bytes(const config::Run& run, const std::vector<layout::StageBlocks>& stages, double activation,
                    int tp, bool sequence_parallel) {
  const config::Model& m = run.model;
  const AttentionInput attention = attention_input(m);
  const bool shared = m.moe.shared_expert_intermediate_size > 0;
  const auto regions = [&](const layout::LayerCounts& c) {
    return std::pair(static_cast<double>(c.dense + c.experts),
                     static_cast<double>(c.dense + (shared ? c.experts : 0)));
  };
  double passes = 0, first_tokens = 0;
  for (const layout::StageBlocks& stage : stages) {
    if (stage.has(BlockKind::kHead) && m.bert_binary_head && sequence_parallel)
      first_tokens += activation / static_cast<double>(run.training.seq_length);
    const auto depths = static_cast<double>(m.mtp_num_layers);
    const double mtp = stage.has(BlockKind::kFinalNorm) ? depths : 0;
    const layout::LayerCounts counts = layout::layers_with_mtp(m, stage);
    const auto [layers, mlps] = regions(counts);
    const double heads = stage.has(BlockKind::kHead) ? 1 + depths : 0;
    const double parts = (1 + attention.gathered) * layers + 2 * mlps +
                         (stage.has(BlockKind::kEmbedding) ? 1 : 0) + mtp + heads;
    const double for_weights = attention.regathered * layers + mlps + heads;
    passes += 2 * parts + (sequence_parallel ? for_weights : 0);
    // Forward: an all-reduce at the end of a region equals a reduce-scatter and an all-gather.
    const auto [recomputed, recomputed_mlps] = regions(layout::recomputed_layers_with_mtp(run, stage));
    passes += (sequence_parallel ? 1 + attention.gathered : 2) * recomputed + 2 * recomputed_mlps;
    if (run.recompute.recomputes("mlp")) passes += 2 * static_cast<double>(counts.dense);
    if (shared && (run.recompute.recomputes("moe") || run.recompute.recomputes("shared_experts")))
      passes += 2 * static_cast<double>(counts.experts);
    if (run.recompute.recomputes("mla_up_proj") && sequence_parallel) passes += attention.regathered * layers;
  }
  return ring_bytes(activation, tp) * passes + ring_bytes(first_tokens, tp);
}

/// Inputs and outputs of a layer's tensor-parallel regions, in bytes of unsharded hidden states.
struct LayerRegions {
  double mlp = 0, opened = 0, closed = 0;
  /// Forward and backward, with a further all-gather for weight gradients; an all-reduce counts twice.
  [[nodiscard]] double training(bool sequence_parallel) const {
    return (sequence_parallel ? 3 : 2) * opened + 2 * closed;
  }
  [[nodiscard]] double recomputing(bool sequence_parallel) const {
    return sequence_parallel ? opened + closed : 2 * closed;
  }
};

/// Cross-attention opens its region with both sequences and closes it with the decoder's.
LayerRegions regions_of(const config::Model& m, std::int64_t layer, double encoder, double decoder) {
  if (layer < m.encoder_num_layers) return {encoder, 2 * encoder, 2 * encoder};
  return {decoder, 3 * decoder + encoder, 3 * decoder};
}

/// tensor_bytes of an encoder-decoder model, whose layers process sequences of two lengths.
double encoder_tensor_bytes(const config::Run& run, const std::vector<layout::StageBlocks>& stages, int tp,
                            bool sequence_parallel) {
  const SampleLength length = sample_length(run);
  const double row =
      static_cast<double>(run.training.micro_batch_size * run.model.hidden_size) * activation_element(run);
  const double decoder = row * static_cast<double>(length.tokens);
  const double encoder = row * static_cast<double>(length.encoder);
  double bytes = 0;
  for (const layout::StageBlocks& stage : stages) {
    if (stage.has(BlockKind::kEmbedding)) bytes += 2 * (encoder + decoder);
    if (stage.has(BlockKind::kHead)) bytes += (sequence_parallel ? 3 : 2) * decoder;
    const layout::LayerCounts recomputed = layout::recomputed_layers(run, stage);
    for (std::int64_t i = 0; i < stage.layers().size(); ++i) {
      const LayerRegions layer = regions_of(run.model, stage.layers().first + i, encoder, decoder);
      bytes += layer.training(sequence_parallel);
      if (i < recomputed.dense)
        bytes += layer.recomputing(sequence_parallel);
      else if (run.recompute.recomputes("mlp"))
        bytes += 2 * layer.mlp;
    }
  }
  return ring_bytes(bytes, tp);
}

/// Bytes that the most loaded of `ranks` sends in dispatch and combine, relative to balanced routing. It
/// dispatches the same rows but returns more.
double imbalance_factor(double fullest, int ranks) {
  return ranks == 1 ? 1 : (ranks + fullest * (ranks - 2)) / (2.0 * (ranks - 1));
}

/// Expert-parallel bytes of a stage's MoE layers for one micro-batch, on the most loaded rank.
double expert_bytes(const config::Run& run, const layout::StageBlocks& stage) {
  const auto layers = static_cast<double>(layout::layers_with_mtp(run.model, stage).experts);
  if (layers == 0) return 0;
  const auto full = static_cast<double>(layout::recomputed_layers_with_mtp(run, stage).experts);
  const double recomputed = run.recompute.recomputes("moe") ? layers : full;
  const int ranks = run.parallel.expert_model_parallel_size * run.parallel.expert_tensor_size();
  double bytes = 0;
  for (const Collective& c : moe_cost(run).collectives)
    if (c.group == GroupKind::kExperts)
      bytes += (c.forward * (layers + recomputed) + c.backward * layers) * ring_bytes(c.bytes, ranks) *
               imbalance_factor(c.imbalance, ranks);
  return bytes;
}

/// Context-parallel bytes of one layer and micro-batch by direction; `qkv`: the forward all-to-all of
/// queries, keys and values.
struct ContextBytes {
  double forward = 0, backward = 0, qkv = 0;
};
ContextBytes context_bytes(const config::Run& run, std::int64_t layer) {
  const config::Model& m = run.model;
  const layout::LayerContextParallel kind = layout::context_layer(run.parallel, layer);
  const int tp = run.parallel.tensor_model_parallel_size;
  const double tokens = static_cast<double>(run.training.micro_batch_size * run.training.seq_length) /
                        run.parallel.context_parallel_size;
  const double element = activation_element(run);
  const std::int64_t groups = std::max<std::int64_t>(1, m.num_query_groups / tp);
  // Channels per local token; key heads shared by several ranks are sent to each of them.
  const std::int64_t heads = m.num_attention_heads / tp;
  const std::int64_t exchanged = kind.heads * std::max<std::int64_t>(1, groups / kind.heads);
  const std::int64_t head_dim = std::max(m.kv_channels, m.value_head_dim());  // the narrower ones are padded
  const auto q = static_cast<double>(heads * head_dim);
  const auto kv = static_cast<double>(exchanged * head_dim);
  const double qkv_exchange = ring_bytes(tokens * element * (q + 2 * kv), kind.heads);
  const double exchange = qkv_exchange + ring_bytes(tokens * element * q, kind.heads);
  const double keys = 2 * tokens * kv, hops = kind.ring - 1;
  const double ring = kind.ring > 1 ? keys * element * hops : 0;
  const double gradients = kind.ring > 1 ? keys * kFp32 * (kind.gathers ? hops : kind.ring) : 0;
  return {exchange + ring, exchange + ring + gradients, qkv_exchange};
}

/// Context-parallel bytes of a stage's layers, MTP layers included, for one micro-batch.
double context_bytes(const config::Run& run, const layout::StageBlocks& stage) {
  const layout::LayerCounts recomputed = layout::recomputed_layers(run, stage);
  const bool recomputes_core = run.recompute.recomputes("core_attn");
  const bool recomputes_qkv = run.recompute.recomputes("mla_up_proj") && !recomputes_core;
  const auto layer_bytes = [&](std::int64_t layer, bool recomputes) {
    const ContextBytes bytes = context_bytes(run, layer);
    return (recomputes || recomputes_core ? 2 : 1) * bytes.forward + bytes.backward +
           (recomputes_qkv ? bytes.qkv : 0);
  };
  double bytes = 0;
  for (std::int64_t i = 0; i < stage.layers().size(); ++i)
    bytes += layer_bytes(stage.layers().first + i, i < recomputed.dense + recomputed.experts);
  if (const std::int64_t depths = stage.has(BlockKind::kFinalNorm) ? run.model.mtp_num_layers : 0; depths > 0)
    bytes += static_cast<double>(depths) *
             layer_bytes(run.model.num_layers, layout::recomputes_mtp_layers(run.recompute));
  return bytes;
}

/// Micro-batches whose block uses the tied embedding for MTP lookups in one backward pass and for its logits
/// in a later weight-gradient pass.
int split_table_backwards(const config::Run& run, const StageMemory& memory,
                          const schedule::Program& program) {
  if (run.model.mtp_num_layers == 0 || run.model.untie_embeddings_and_output_weights) return 0;
  return static_cast<int>(std::ranges::count_if(program, [&](const schedule::Action& a) {
    const layout::StageBlocks& stage = memory.stages[static_cast<std::size_t>(a.chunk)];
    return a.kind == schedule::ActionKind::kBackwardInput && stage.has(BlockKind::kFinalNorm) &&
           stage.has(BlockKind::kHead);
  }));
}

/// Data-parallel traffic: unsharded gradients and parameters within an instance, and this rank's shard
/// between instances. With FSDP units a shared table is communicated with each block that reads it, in every
/// pass.
void add_data(const config::Run& run, const StageMemory& memory, const layout::Mesh& mesh, int microbatches,
              const schedule::Program& program, StageTraffic& traffic) {
  const layout::Sharding sharding = layout::sharding_of(run.parallel);
  const layout::ReplicaLevels levels = layout::replica_levels(run.parallel, mesh);
  const config::Dtypes dtypes = config::dtypes_of(run);
  const auto parameter = static_cast<double>(config::bytes(dtypes.parameter_wire));
  const auto gradient = static_cast<double>(config::bytes(dtypes.gradient_wire));
  const auto experts = static_cast<double>(memory.expert_elements);
  const bool shards_gradients = sharding >= layout::Sharding::kGradients,
             shards_params = sharding == layout::Sharding::kParameters;
  const double extra = shards_gradients ? static_cast<double>(memory.extra_tied_elements) : 0;
  const double split = shards_gradients ? static_cast<double>(memory.tied_elements) *
                                              split_table_backwards(run, memory, program)
                                        : 0;
  const double scatters = shards_gradients ? microbatches : 1;
  const double gathers =
      shards_params ? (run.parallel.torch_fsdp2_reshard_after_forward ? 2.0 : 1.0) * microbatches : 1;
  const auto add = [&](layout::ParamGroup family, double elements, double extra_table, double split_table) {
    const int inner = levels.inner.of(family), outer = levels.outer.of(family);
    traffic.data +=
        ring_bytes(((elements + extra_table) * scatters + split_table) * gradient, inner) +
        (sharding == layout::Sharding::kNone
             ? ring_bytes(elements * gradient, inner)
             : ring_bytes((elements + (shards_params ? extra_table : 0)) * parameter, inner) * gathers);
    const double part = sharding == layout::Sharding::kNone ? elements : elements / inner;
    traffic.outer_data += ring_bytes(part * gradient, outer) +
                          ring_bytes(part * (levels.outer_sharded ? parameter : gradient), outer);
  };
  add(layout::ParamGroup::kDense, static_cast<double>(memory.elements) - experts, extra, split);
  add(layout::ParamGroup::kExpert, experts, 0, 0);
}

/// All-reduce of parameters shared by several stages, for the shard that the rank updates.
double shared_param_bytes(const config::Run& run, const StageMemory& memory, const layout::Mesh& mesh,
                          int rank) {
  const layout::Sharding sharding = layout::sharding_of(run.parallel);
  const layout::ReplicaLevels levels = layout::replica_levels(run.parallel, mesh);
  const double parts = (sharding >= layout::Sharding::kOptimizer ? levels.inner.dense : 1) *
                       (levels.outer_sharded ? levels.outer.dense : 1);
  const auto gradient = static_cast<double>(config::bytes(config::dtypes_of(run).main_gradient));
  const auto stages = layout::split_stages(run.model, run.parallel);
  double bytes = 0;
  for (const auto& [held_by, elements] : {std::pair(layout::HeldBy::kTiedEmbeddings, memory.tied_elements),
                                          std::pair(layout::HeldBy::kEncoder, memory.encoder_elements),
                                          std::pair(layout::HeldBy::kDecoder, memory.decoder_elements)}) {
    const std::vector<int> ranks = layout::holders(run.model, run.parallel, stages, held_by);
    if (std::ranges::find(ranks, rank) == ranks.end()) continue;
    bytes += 2 * ring_bytes(static_cast<double>(elements) / parts * gradient, static_cast<int>(ranks.size()));
  }
  return bytes;
}

}  // namespace

std::vector<StageTraffic> plan_traffic(const config::Run& given) {
  const config::Run run = layout::with_fixed_context_size(given);
  const layout::Mesh mesh(run.parallel);
  const std::vector<StageMemory> memory = plan_memory(run);
  const schedule::Schedule schedule = schedule_of(run);
  const int tp = mesh.size(layout::Axis::kTp);
  const bool sequence_parallel = run.parallel.sequence_parallel && tp > 1;
  const double activation = activation_bytes(run);
  std::vector<StageTraffic> traffic;
  for (std::size_t rank = 0; rank < memory.size(); ++rank) {
    StageTraffic t;
    const double tensor = run.model.has_encoder()
                              ? encoder_tensor_bytes(run, memory[rank].stages, tp, sequence_parallel)
                              : tensor_bytes(run, memory[rank].stages, activation, tp, sequence_parallel);
    t.tensor = tensor * schedule.microbatches;
    for (const schedule::Action& a : schedule.programs[rank]) {
      const layout::StageBlocks& stage = memory[rank].stages[static_cast<std::size_t>(a.chunk)];
      if (schedule::is_send(a.kind))
        t.pipeline += static_cast<double>(message_bytes(
            run, a.kind == schedule::ActionKind::kSendActivation ? stage.states_out : stage.states_in));
    }
    add_data(run, memory[rank], mesh, schedule.microbatches, schedule.programs[rank], t);
    t.shared_embeddings = shared_param_bytes(run, memory[rank], mesh, static_cast<int>(rank));
    for (const layout::StageBlocks& stage : memory[rank].stages)
      t.experts += expert_bytes(run, stage) * schedule.microbatches;
    if (mesh.size(layout::Axis::kCp) > 1)
      for (const layout::StageBlocks& stage : memory[rank].stages)
        t.context += context_bytes(run, stage) * schedule.microbatches;
    traffic.push_back(t);
  }
  return traffic;
}

}  // namespace colonnade::cost
