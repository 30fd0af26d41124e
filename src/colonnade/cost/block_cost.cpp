// Costs by formula; the header defines the letters.
#include "colonnade/cost/block_cost.h"

#include <algorithm>
#include <utility>

#include "colonnade/cost/block_sizes.h"
#include "colonnade/cost/flops.h"
#include "colonnade/layout/layer_kind.h"
#include "colonnade/layout/recompute.h"

namespace colonnade::cost {

using layout::BlockKind;

BlockCost embedding_cost(const config::Run& run) {
  const BlockSizes z(run);
  BlockCost cost;
  const double types = z.m.num_tokentypes > 0 ? 1 : 0;
  cost.add_elementwise(2 * z.full_hidden + types * z.hidden, 2 * z.full_hidden + types * z.hidden,
                       2 + static_cast<int>(types), 2 + static_cast<int>(types));
  add_reduce(cost, z, z.full_hidden);
  return cost;
}

BlockCost mlp_cost(const config::Run& run) {
  const BlockSizes z(run);
  BlockCost cost;
  add_norm(cost, z);
  add_sandwich_norm(cost, z);
  add_mlp(cost, z, "fc1", "fc2", z.ffn);
  return cost;
}

BlockCost head_cost(const config::Run& run) {
  const BlockSizes z(run);
  BlockCost cost;
  const double rows = static_cast<double>(padded_vocab_size(z.m, static_cast<int>(z.t))) / z.t;
  const double logits = z.n * rows * z.e;
  cost.add_elementwise(2 * logits, 2 * logits, 4, 1);
  cost.matmuls = {{"output", z.n, rows, z.h, LinearSharding::kColumns, z.full_hidden}};
  if (!z.m.lm_head_transform) return cost;
  add_plain_norm(cost, z.hidden);
  cost.add_elementwise(2 * z.hidden, 3 * z.hidden, 1, 1);
  cost.matmuls.push_back({"dense", z.r, z.h, z.h, LinearSharding::kReplicated});
  if (!z.m.bert_binary_head) return cost;
  const auto samples = static_cast<double>(run.training.micro_batch_size);
  cost.matmuls.push_back({"pooler", samples, z.h, z.h, LinearSharding::kReplicated});
  cost.matmuls.push_back({"binary head", samples, 2, z.h, LinearSharding::kReplicated});
  if (z.sequence_parallel) cost.collectives.push_back({GroupKind::kTensor, false, samples * z.h * z.e, 1, 0});
  return cost;
}

BlockCost final_norm_cost(const config::Run& run) {
  BlockCost cost;
  add_norm(cost, BlockSizes(run));
  return cost;
}

BlockCost state_concat_cost(const config::Run& run, const layout::StageBlocks& stage) {
  BlockCost cost;
  const auto bytes = [&](std::int64_t states) {
    return static_cast<double>(states) * BlockSizes(run).hidden;
  };
  if (stage.states_out > stage.states_in) cost.add_elementwise(2 * bytes(stage.states_out), 0, 1, 0);
  if (stage.states_in > stage.states_out) cost.add_elementwise(0, 2 * bytes(stage.states_in), 0, 1);
  return cost;
}

BlockCost mtp_projection_cost(const config::Run& run) {
  const BlockSizes z(run);
  BlockCost cost;
  add_plain_norm(cost, z.hidden);
  add_plain_norm(cost, z.hidden);
  cost.add_elementwise(4 * z.hidden, 4 * z.hidden, 1, 1);
  cost.matmuls = {{"eh_proj", z.r, z.h, 2 * z.h, LinearSharding::kReplicated}};
  return cost;
}

BlockCost without_norms(const config::Run& run, BlockCost cost) {
  const BlockSizes z(run);
  BlockCost norms;
  add_norm(norms, z);
  add_sandwich_norm(norms, z);
  cost.add_elementwise(-norms.forward_bytes, -norms.backward_bytes, -norms.forward_kernels,
                       -norms.backward_kernels);
  return cost;
}

namespace {

double real(std::int64_t number) { return static_cast<double>(number); }

/// Layers of a stage with equal attention, as (first layer, count).
std::vector<std::pair<std::int64_t, std::int64_t>> equal_layers(const config::Run& run,
                                                                const layout::StageBlocks& stage) {
  if (stage.layers().size() == 0) return {};
  const bool one_window = run.model.window_size == 0 || run.model.window_attn_skip_freq.empty();
  if (one_window && (run.parallel.context_parallel_size == 1 || run.parallel.cp_comm_type.size() == 1))
    return {{stage.layers().first, stage.layers().size()}};
  std::vector<std::pair<std::int64_t, std::int64_t>> layers;
  for (const std::int64_t i : stage.layers()) layers.emplace_back(i, 1);
  return layers;
}

/// Attention of the stage's layers, of which the first `recomputed` are recomputed.
void add_attention_layers(const config::Run& run, const layout::StageBlocks& stage, AttentionKernel kernel,
                          std::int64_t recomputed, std::vector<RepeatedBlock>& blocks) {
  for (const auto& [first, count] : equal_layers(run, stage)) {
    const std::int64_t left = stage.layers().first + recomputed - first;
    blocks.push_back({attention_cost(run, first, kernel), real(count), true,
                      real(std::clamp(left, std::int64_t{0}, count))});
  }
}

/// MTP depths: embedding, projection, and a layer like the last one each.
void add_mtp_layers(const config::Run& run, AttentionKernel kernel, std::vector<RepeatedBlock>& blocks) {
  const auto depths = static_cast<double>(run.model.mtp_num_layers);
  if (depths == 0) return;
  const double recomputed = layout::recomputes_mtp_layers(run.recompute) ? depths : 0;
  const bool experts = layout::layer_kinds(run.model).back().is_moe();
  blocks.push_back({embedding_cost(run), depths});
  blocks.push_back({mtp_projection_cost(run), depths, false, recomputed});
  blocks.push_back({attention_cost(run, run.model.num_layers, kernel), depths, true, recomputed});
  blocks.push_back({experts ? moe_cost(run) : mlp_cost(run), depths, true, recomputed});
}

/// Modules that selective recomputation repeats in every layer.
void add_recomputed_modules(const config::Run& run, const layout::StageBlocks& stage, AttentionKernel kernel,
                            std::vector<RepeatedBlock>& blocks) {
  if (run.recompute.granularity != "selective") return;
  const layout::LayerCounts layers = layout::layers_with_mtp(run.model, stage);
  const double dense = real(layers.dense), experts = real(layers.experts);
  const auto add = [&](const char* module, const BlockCost& cost, double recomputed) {
    if (run.recompute.recomputes(module) && recomputed > 0) blocks.push_back({cost, 0, true, recomputed});
  };
  BlockCost norm;
  norm.add_elementwise(2 * BlockSizes(run).hidden, 0, 1, 0);
  add("layernorm", norm, 2 * (dense + experts));
  const auto add_attention = [&](std::int64_t layer, double recomputed) {
    add("core_attn", core_attention_cost(run, layer, kernel), recomputed);
    if (run.model.latent.enabled) add("mla_up_proj", latent_up_projection_cost(run, layer), recomputed);
  };
  for (const auto& [first, count] : equal_layers(run, stage)) add_attention(first, real(count));
  if (stage.has(BlockKind::kFinalNorm)) add_attention(run.model.num_layers, real(run.model.mtp_num_layers));
  add("mlp", without_norms(run, mlp_cost(run)), dense);
  if (layers.experts == 0) return;
  add("moe", without_norms(run, moe_cost(run)), experts);
  if (run.recompute.recomputes("moe")) return;
  add("moe_act", expert_activation_cost(run), experts);
  add("shared_experts", shared_experts_cost(run), experts);
}

}  // namespace

std::vector<RepeatedBlock> stage_cost(const config::Run& run, const layout::StageBlocks& stage,
                                      AttentionKernel kernel) {
  if (run.model.has_encoder()) return encoder_stage_cost(run, stage, kernel);
  const layout::LayerCounts counts = layout::layers_of(run.model, stage),
                            whole = layout::recomputed_layers(run, stage);
  std::vector<RepeatedBlock> blocks;
  if (stage.has(BlockKind::kEmbedding)) blocks.push_back({embedding_cost(run), 1});
  add_attention_layers(run, stage, kernel, whole.dense + whole.experts, blocks);
  if (counts.dense > 0) blocks.push_back({mlp_cost(run), real(counts.dense), true, real(whole.dense)});
  if (counts.experts > 0) blocks.push_back({moe_cost(run), real(counts.experts), true, real(whole.experts)});
  const double predicted_tokens = 1 + real(run.model.mtp_num_layers);
  if (stage.has(BlockKind::kFinalNorm)) blocks.push_back({final_norm_cost(run), predicted_tokens});
  if (stage.has(BlockKind::kFinalNorm)) add_mtp_layers(run, kernel, blocks);
  if (stage.states_out != stage.states_in) blocks.push_back({state_concat_cost(run, stage), 1});
  if (stage.has(BlockKind::kHead)) blocks.push_back({head_cost(run), predicted_tokens});
  add_recomputed_modules(run, stage, kernel, blocks);
  return blocks;
}

}  // namespace colonnade::cost
