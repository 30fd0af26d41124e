// Published comparisons of two layouts or programs for one model.
#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/config/derive.h"
#include "published.h"

namespace colonnade::planner {
namespace {

/// Llama 3 with 8, 70 or 405 billion parameters.
config::Model llama(std::int64_t billions) {
  const std::int64_t hidden = billions == 8 ? 4096 : billions == 70 ? 8192 : 16384;
  config::Model m = llama_like(billions == 8 ? 32 : billions == 70 ? 80 : 126, hidden, hidden / 128, 8);
  m.ffn_hidden_size = billions == 8 ? 14336 : billions == 70 ? 28672 : 53248;
  m.vocab_size = 128256;
  return m;
}

struct Layout {
  int world, tensor, pipeline, chunks;
  std::int64_t batch;
  int context = 1;
  std::int64_t length = 8192;
  bool count_ends = false;  ///< embedding and loss count as layers
};

Row row_of(std::int64_t billions, const Layout& l, bool full_recompute = false) {
  Row row{.name = {}, .hardware = "h100", .run = {}, .execution = {}};
  row.run.model = llama(billions);
  config::Parallel& p = row.run.parallel;
  p.world_size = l.world;
  p.tensor_model_parallel_size = l.tensor;
  p.pipeline_model_parallel_size = l.pipeline;
  p.context_parallel_size = l.context;
  p.num_virtual_stages_per_pipeline_rank = l.chunks > 1 ? l.chunks : 0;
  p.sequence_parallel = l.tensor > 1;
  p.account_for_embedding_in_pipeline_split = p.account_for_loss_in_pipeline_split = l.count_ends;
  p.use_distributed_optimizer = p.overlap_grad_reduce = p.overlap_param_gather = true;
  row.run.training.device = "cuda";
  row.run.training.seq_length = l.length;
  row.run.training.micro_batch_size = 1;
  row.run.training.global_batch_size = l.batch;
  if (full_recompute) row.run.recompute = {.granularity = "full", .method = "uniform", .num_layers = 1};
  config::derive(row.run);
  return row;
}

Row row_named(const std::vector<Row>& rows, const std::string& name) {
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.name == name; });
  if (row == rows.end())
    throw Error("pairs: rows must include every compared name; got no row '" + name + "'; correct the name");
  return *row;
}

}  // namespace

std::vector<Pair> published_pairs() {
  const std::vector<Row> dense = published_rows(), moe_rows = published_moe_rows();
  const auto titan = [&](const char* name) { return row_named(dense, std::string("torchtitan ") + name); };
  const auto moe = [&](const char* name) { return row_named(moe_rows, name); };
  return {
      {"compiled instead of eager, 8B", 6667.0 / 5762, titan("8B, 8 GPUs, eager"), titan("8B, 8 GPUs")},
      {"async TP (chunked matmuls), 8B, TP 8", 4809.0 / 4378, titan("8B, 64 GPUs, TP 8"),
       titan("8B, 64 GPUs, TP 8, async")},
      {"async TP (chunked matmuls), 70B, TP 8", 652.0 / 597, titan("70B, 256 GPUs, TP 8"),
       titan("70B, 256 GPUs, TP 8, async")},
      {"interleaved instead of 1F1B, 405B, 512 GPUs (FP8)", 1.28,
       row_of(405, {512, 8, 8, 1, 256, 1, 8192, true}, true),
       row_of(405, {512, 8, 8, 2, 256, 1, 8192, true}, true)},
      {"8 instead of 4 tensor ranks, 70B", 508.7 / 709.9, row_of(70, {64, 4, 4, 5, 256}),
       row_of(70, {64, 8, 4, 5, 256})},
      {"8 instead of 4 stages, 70B", 0.941, row_of(70, {64, 4, 4, 5, 256}), row_of(70, {64, 4, 8, 5, 256})},
      {"full recomputation, 70B", 0.77, row_of(70, {64, 4, 4, 5, 256}), row_of(70, {64, 4, 4, 5, 256}, true)},
      {"48 times as many GPUs for one batch, 177B", 42.0 / 47, row_named(dense, "Megatron 177B, 96 GPUs"),
       row_named(dense, "Megatron 177B, 4608 GPUs")},
      {"8 context ranks for 8 times the length, 8B (FP8)", 548.0 / 3890,
       row_of(8, {8, 1, 1, 1, 8, 1, 32768}, true), row_of(8, {8, 1, 1, 1, 1, 8, 262144}, true)},
      {"expert all-to-all overlap, Qwen3 30B", 41.25 / 31.31, moe("Qwen3 30B, 16 GPUs"),
       moe("Qwen3 30B, 16 GPUs, overlap")},
      {"the same with HybridEP", 24.71 / 20.99, moe("Qwen3 30B, 16 GPUs, HybridEP"),
       moe("Qwen3 30B, 16 GPUs, HybridEP, overlap")},
      {"the same with DeepEP, Qwen3 235B", 19.7 / 17.6, moe("Qwen3 235B, 256 GPUs, EP 32, DeepEP"),
       moe("Qwen3 235B, 256 GPUs, EP 32, DeepEP, overlap")},
  };
}

}  // namespace colonnade::planner
