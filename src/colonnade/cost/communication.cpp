// Counts the bytes of collectives and transfers.
#include "colonnade/cost/communication.h"

#include <algorithm>
#include <utility>

#include "colonnade/cost/activations.h"
#include "colonnade/cost/flops.h"
#include "colonnade/cost/memory.h"
#include "colonnade/cost/work.h"
#include "colonnade/layout/buckets.h"
#include "colonnade/layout/context_groups.h"
#include "colonnade/layout/context_parallel.h"
#include "colonnade/layout/mesh.h"
#include "colonnade/layout/param.h"
#include "colonnade/layout/recompute.h"

namespace colonnade::cost {
namespace {

constexpr double kFp32 = 4;

/// Bytes sent per rank by an all-gather or reduce-scatter of `bytes` over `ranks`.
double ring(double bytes, int ranks) { return bytes * (ranks - 1) / ranks; }

/// Bytes of one activation between layers.
double activation_bytes(const config::Run& run) {
  const double rows = static_cast<double>(run.training.micro_batch_size * run.training.seq_length) /
                      run.parallel.context_parallel_size;
  return rows * static_cast<double>(run.model.hidden_size) * static_cast<double>(element_size(run.model));
}

/// What opens the parallel stretch of attention, in activations between layers: each way, and gathered again.
/// With narrow vectors these, and the channels that all keys share, are gathered or have their gradients
/// summed.
struct Opening {
  double passes = 1, again = 1;
};
Opening attention_opening(const config::Model& m) {
  if (!m.latent.enabled) return {};
  const auto h = static_cast<double>(m.hidden_size);
  const double queries = m.latent.q_lora_rank > 0 ? static_cast<double>(m.latent.q_lora_rank) : h;
  const double vectors = queries + static_cast<double>(m.latent.kv_lora_rank);
  return {.passes = (vectors + static_cast<double>(m.latent.qk_pos_emb_head_dim)) / h, .again = vectors / h};
}

/// Of one micro-batch. A layer opens and closes two parallel stretches (of experts only shared ones), the
/// embedding closes one, the head opens one, and each further token does as all three; cut by sequence, what
/// a stretch reads is gathered again for its weight gradients. What is made again goes forward once more. The
/// first tokens of sequences that are cut go to all ranks of a binary head.
double tensor_bytes(const config::Run& run, const std::vector<layout::StageBlocks>& stages, double activation,
                    int tp, bool by_sequence) {
  const config::Model& m = run.model;
  const Opening attention = attention_opening(m);
  const bool shared = m.moe.shared_expert_intermediate_size > 0;
  const auto stretches = [&](const layout::LayerCounts& c) {
    return std::pair(static_cast<double>(c.dense + c.experts),
                     static_cast<double>(c.dense + (shared ? c.experts : 0)));
  };
  double passes = 0, first_tokens = 0;
  for (const layout::StageBlocks& stage : stages) {
    if (stage.head && m.bert_binary_head && by_sequence)
      first_tokens += activation / static_cast<double>(run.training.seq_length);
    const auto depths = static_cast<double>(m.mtp_num_layers);
    const double predictions = stage.final_norm ? depths : 0;
    const layout::LayerCounts counts = layout::layers_with_predictions(m, stage);
    const auto [layers, mlps] = stretches(counts);
    const double heads = stage.head ? 1 + depths : 0;
    const double parts =
        (1 + attention.passes) * layers + 2 * mlps + (stage.embedding ? 1 : 0) + predictions + heads;
    const double for_weights = attention.again * layers + mlps + heads;
    passes += 2 * parts + (by_sequence ? for_weights : 0);
    // Forward: sums at the ends of a stretch are as long as two cut passes.
    const auto [whole, whole_mlps] = stretches(layout::layers_made_again_with_predictions(run, stage));
    passes += (by_sequence ? 1 + attention.passes : 2) * whole + 2 * whole_mlps;
    if (run.recompute.selects("mlp")) passes += 2 * static_cast<double>(counts.dense);
    if (shared && (run.recompute.selects("moe") || run.recompute.selects("shared_experts")))
      passes += 2 * static_cast<double>(counts.experts);
    if (run.recompute.selects("mla_up_proj") && by_sequence) passes += attention.again * layers;
  }
  return ring(activation, tp) * passes + ring(first_tokens, tp);
}

/// What the parallel stretches of a layer open with and close with, in bytes of whole activations.
struct Stretches {
  double own = 0, opened = 0, closed = 0;
  /// Forward and backward, and gathered once more for weights; a sum is as long as two cut passes.
  [[nodiscard]] double trained(bool by_sequence) const { return (by_sequence ? 3 : 2) * opened + 2 * closed; }
  [[nodiscard]] double again(bool by_sequence) const { return by_sequence ? opened + closed : 2 * closed; }
};

/// Attention to the encoder opens its stretch with both sequences and closes it with the decoder's.
Stretches stretches_of(const config::Model& m, std::int64_t layer, double encoder, double decoder) {
  if (layer < m.encoder_num_layers) return {encoder, 2 * encoder, 2 * encoder};
  return {decoder, 3 * decoder + encoder, 3 * decoder};
}

/// The same as tensor_bytes of an encoder and its decoder, whose layers work on sequences of two lengths.
double encoder_tensor_bytes(const config::Run& run, const std::vector<layout::StageBlocks>& stages, int tp,
                            bool by_sequence) {
  const SampleLength length = sample_length(run);
  const auto row =
      static_cast<double>(run.training.micro_batch_size * run.model.hidden_size * element_size(run.model));
  const double decoder = row * static_cast<double>(length.tokens);
  const double encoder = row * static_cast<double>(length.encoder);
  double bytes = 0;
  for (const layout::StageBlocks& stage : stages) {
    if (stage.embedding) bytes += 2 * (encoder + decoder);
    if (stage.head) bytes += (by_sequence ? 3 : 2) * decoder;
    const layout::LayerCounts again = layout::layers_made_again(run, stage);
    for (std::int64_t i = 0; i < stage.num_layers; ++i) {
      const Stretches layer = stretches_of(run.model, stage.first_layer + i, encoder, decoder);
      bytes += layer.trained(by_sequence);
      if (i < again.dense)
        bytes += layer.again(by_sequence);
      else if (run.recompute.selects("mlp"))
        bytes += 2 * layer.own;
    }
  }
  return ring(bytes, tp);
}

/// What the fullest of `ranks` sends in an exchange there and back, over what each sends where all are alike:
/// there, less stays at home of what it has, and more goes back.
double there_and_back(double fullest, int ranks) {
  return ranks == 1 ? 1 : (ranks + fullest * (ranks - 2)) / (2.0 * (ranks - 1));
}

/// Of all layers with experts of a stage, for one micro-batch, of the fullest rank.
double expert_bytes(const config::Run& run, const layout::StageBlocks& stage) {
  const auto layers = static_cast<double>(layout::layers_with_predictions(run.model, stage).experts);
  if (layers == 0) return 0;
  const auto whole = static_cast<double>(layout::layers_made_again_with_predictions(run, stage).experts);
  const double again = run.recompute.selects("moe") ? layers : whole;
  const int ranks = run.parallel.expert_model_parallel_size * run.parallel.expert_tensor();
  double bytes = 0;
  for (const Collective& c : experts_work(run).collectives)
    if (c.among == Among::kExperts)
      bytes += (c.forward * (layers + again) + c.backward * layers) * ring(c.bytes, ranks) *
               there_and_back(c.fullest, ranks);
  return bytes;
}

/// Of one layer and micro-batch, each way; `heads` of forward, to where they are read.
struct ContextBytes {
  double forward = 0, backward = 0, heads = 0;
};
ContextBytes context_bytes(const config::Run& run, std::int64_t layer) {
  const config::Model& m = run.model;
  const layout::ContextLayer kind = layout::context_layer(run.parallel, layer);
  const int tp = run.parallel.tensor_model_parallel_size;
  const double tokens = static_cast<double>(run.training.micro_batch_size * run.training.seq_length) /
                        run.parallel.context_parallel_size;
  const auto element = static_cast<double>(element_size(m));
  const std::int64_t groups = std::max<std::int64_t>(1, m.num_query_groups / tp);
  // Columns for each token of this rank; keys that neighbours share are sent to each of them.
  const std::int64_t heads = m.num_attention_heads / tp;
  const std::int64_t exchanged = kind.heads * std::max<std::int64_t>(1, groups / kind.heads);
  const std::int64_t wide = std::max(m.kv_channels, m.value_channels());  // the narrower are filled up
  const auto q = static_cast<double>(heads * wide);
  const auto kv = static_cast<double>(exchanged * wide);
  const double heads_there = ring(tokens * element * (q + 2 * kv), kind.heads);
  const double exchange = heads_there + ring(tokens * element * q, kind.heads);
  const double keys = 2 * tokens * kv, hops = kind.ring - 1;
  const double round = kind.ring > 1 ? keys * element * hops : 0;
  const double gradients = kind.ring > 1 ? keys * 4 * (kind.gathers ? hops : kind.ring) : 0;
  return {exchange + round, exchange + round + gradients, heads_there};
}

/// Of all layers of a stage, those of further tokens with them, for one micro-batch.
double context_bytes(const config::Run& run, const layout::StageBlocks& stage) {
  const layout::LayerCounts whole = layout::layers_made_again(run, stage);
  const bool scores_again = run.recompute.selects("core_attn");
  const bool heads_again = run.recompute.selects("mla_up_proj") && !scores_again;
  const auto of = [&](std::int64_t layer, bool again) {
    const ContextBytes bytes = context_bytes(run, layer);
    return (again || scores_again ? 2 : 1) * bytes.forward + bytes.backward + (heads_again ? bytes.heads : 0);
  };
  double bytes = 0;
  for (std::int64_t i = 0; i < stage.num_layers; ++i)
    bytes += of(stage.first_layer + i, i < whole.dense + whole.experts);
  if (const std::int64_t depths = stage.final_norm ? run.model.mtp_num_layers : 0; depths > 0)
    bytes += static_cast<double>(depths) *
             of(run.model.num_layers, layout::makes_predictions_again(run.recompute));
  return bytes;
}

/// Micro-batches of which one block looks up rows of the tied table for further tokens in one pass and
/// multiplies with it in a later one.
int tables_in_two(const config::Run& run, const StageMemory& memory, const schedule::Program& program) {
  if (run.model.mtp_num_layers == 0 || run.model.untie_embeddings_and_output_weights) return 0;
  return static_cast<int>(std::ranges::count_if(program, [&](const schedule::Action& a) {
    const layout::StageBlocks& stage = memory.stages[static_cast<std::size_t>(a.chunk)];
    return a.act == schedule::Do::kBackwardInput && stage.final_norm && stage.head;
  }));
}

/// Whole gradients and parameters over the ranks that share what is sharded, and this rank's part of them
/// over those that hold the same. Cut by block, a table goes with each of its readers and passes.
void add_data(const config::Run& run, const StageMemory& memory, const layout::Mesh& mesh, int microbatches,
              const schedule::Program& program, StageTraffic& traffic) {
  const layout::Sharding sharding = layout::sharding_of(run.parallel);
  const layout::Levels levels = layout::levels_of(run.parallel, mesh);
  const auto element = static_cast<double>(element_size(run.model));
  const auto gradient = static_cast<double>(layout::travelling_element(run.parallel));
  const auto experts = static_cast<double>(memory.expert_elements);
  const bool by_unit = sharding >= layout::Sharding::kGradients,
             values = sharding == layout::Sharding::kParameters;
  const double again = by_unit ? static_cast<double>(memory.read_again) : 0;
  const double in_two =
      by_unit ? static_cast<double>(memory.tied_elements) * tables_in_two(run, memory, program) : 0;
  const double scatters = by_unit ? microbatches : 1;
  const double gathers =
      values ? (run.parallel.torch_fsdp2_reshard_after_forward ? 2.0 : 1.0) * microbatches : 1;
  const auto add = [&](layout::Family family, double elements, double table, double late) {
    const int inner = levels.inner.of(family), outer = levels.outer.of(family);
    traffic.data += ring(((elements + table) * scatters + late) * gradient, inner) +
                    (sharding == layout::Sharding::kNone
                         ? ring(elements * gradient, inner)
                         : ring((elements + (values ? table : 0)) * element, inner) * gathers);
    const double part = sharding == layout::Sharding::kNone ? elements : elements / inner;
    traffic.outer_data +=
        ring(part * gradient, outer) + ring(part * (levels.outer_cut ? element : gradient), outer);
  };
  add(layout::Family::kDense, static_cast<double>(memory.elements) - experts, again, in_two);
  add(layout::Family::kExpert, experts, 0, 0);
}

/// Of what stages hold together, on each of them: the sum of the stretch that the rank updates.
double stage_bytes(const config::Run& run, const StageMemory& memory, const layout::Mesh& mesh, int rank) {
  const layout::Sharding sharding = layout::sharding_of(run.parallel);
  const layout::Levels levels = layout::levels_of(run.parallel, mesh);
  const double parts = (sharding >= layout::Sharding::kOptimizer ? levels.inner.dense : 1) *
                       (levels.outer_cut ? levels.outer.dense : 1);
  const auto stages = layout::split_stages(run.model, run.parallel);
  double bytes = 0;
  for (const auto& [held_by, elements] : {std::pair(layout::HeldBy::kEnds, memory.tied_elements),
                                          std::pair(layout::HeldBy::kEncoder, memory.encoder_elements),
                                          std::pair(layout::HeldBy::kDecoder, memory.decoder_elements)}) {
    const std::vector<int> ranks = layout::holders(run.model, run.parallel, stages, held_by);
    if (std::ranges::find(ranks, rank) == ranks.end()) continue;
    bytes += 2 * ring(static_cast<double>(elements) / parts * kFp32, static_cast<int>(ranks.size()));
  }
  return bytes;
}

}  // namespace

std::vector<StageTraffic> plan_traffic(const config::Run& given) {
  const config::Run run = layout::with_equal_groups(given);
  const layout::Mesh mesh(run.parallel);
  const std::vector<StageMemory> memory = plan_memory(run);
  const schedule::Schedule schedule = schedule_of(run);
  const int tp = mesh.size(layout::Axis::kTp);
  const bool by_sequence = run.parallel.sequence_parallel && tp > 1;
  const double activation = activation_bytes(run);
  std::vector<StageTraffic> traffic;
  for (std::size_t rank = 0; rank < memory.size(); ++rank) {
    StageTraffic t;
    const double of_tensor = run.model.has_encoder()
                                 ? encoder_tensor_bytes(run, memory[rank].stages, tp, by_sequence)
                                 : tensor_bytes(run, memory[rank].stages, activation, tp, by_sequence);
    t.tensor = of_tensor * schedule.microbatches;
    for (const schedule::Action& a : schedule.programs[rank]) {
      const layout::StageBlocks& stage = memory[rank].stages[static_cast<std::size_t>(a.chunk)];
      if (schedule::is_send(a.act))
        t.pipeline += static_cast<double>(
            message_bytes(run, a.act == schedule::Do::kSendActivation ? stage.states_out : stage.states_in));
    }
    add_data(run, memory[rank], mesh, schedule.microbatches, schedule.programs[rank], t);
    t.stages = stage_bytes(run, memory[rank], mesh, static_cast<int>(rank));
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
