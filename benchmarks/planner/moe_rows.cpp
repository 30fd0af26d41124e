// Published speeds of MoE models in bf16 on H100, with forced balanced routing.
#include <algorithm>

#include "colonnade/config/derive.h"
#include "colonnade/cost/flops.h"
#include "published.h"

namespace colonnade::planner {
namespace {

config::Model moe_base(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t groups) {
  config::Model m = llama_like(layers, hidden, heads, groups);
  m.kv_channels = 128;
  m.moe.token_dispatcher_type = config::TokenDispatcher::kAllToAll;
  return m;
}

config::Model mixtral(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t ffn) {
  config::Model m = moe_base(layers, hidden, heads, 8);
  m.ffn_hidden_size = m.moe.ffn_hidden_size = ffn;
  m.vocab_size = 32000;
  m.moe.num_experts = 8;
  m.moe.router_topk = 2;
  return m;
}

config::Model qwen3(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t ffn) {
  config::Model m = moe_base(layers, hidden, heads, 4);
  m.ffn_hidden_size = m.moe.ffn_hidden_size = ffn;
  m.vocab_size = 151936;
  m.qk_layernorm = true;
  m.moe.num_experts = 128;
  m.moe.router_topk = 8;
  return m;
}

config::Model gpt_oss_120b() {
  config::Model m = moe_base(36, 2880, 64, 8);
  m.kv_channels = 64;
  m.ffn_hidden_size = m.moe.ffn_hidden_size = 2880;
  m.vocab_size = 201088;
  m.add_bias_linear = true;
  m.activation = config::Activation::kQuickGeglu;
  m.softmax_type = config::SoftmaxType::kLearnable;
  m.window_size = 127;
  m.window_attn_skip_freq = "2";
  m.moe.num_experts = 128;
  m.moe.router_topk = 4;
  return m;
}

/// Layout of a row, with a micro-batch of one sequence.
struct Layout {
  int world, tensor, pipeline, chunks, expert;
  std::int64_t batch;
  bool count_ends = false;             ///< embedding and loss count as layers
  std::vector<std::string> recompute;  ///< --recompute-modules
  int context = 1;
  std::int64_t length = 4096;
};

Row row_of(const char* name, const config::Model& model, const Layout& l, cost::Execution how) {
  Row row{.name = name, .hardware = "h100", .run = {}, .execution = how};
  row.run.model = model;
  config::Parallel& p = row.run.parallel;
  p.world_size = l.world;
  p.tensor_model_parallel_size = l.tensor;
  p.pipeline_model_parallel_size = l.pipeline;
  p.num_virtual_stages_per_pipeline_rank = l.chunks > 1 ? l.chunks : 0;
  p.expert_model_parallel_size = l.expert;
  p.expert_tensor_parallel_size = 1;
  p.sequence_parallel = l.tensor > 1;
  p.account_for_embedding_in_pipeline_split = p.account_for_loss_in_pipeline_split = l.count_ends;
  p.use_distributed_optimizer = p.overlap_grad_reduce = p.overlap_param_gather = true;
  row.run.training.device = "cuda";
  row.run.training.seq_length = l.length;
  p.context_parallel_size = l.context;
  if (!l.recompute.empty()) row.run.recompute = {.granularity = "selective", .modules = l.recompute};
  row.run.training.micro_batch_size = 1;
  row.run.training.global_batch_size = l.batch;
  config::derive(row.run);
  return row;
}

Row in_seconds(Row row, double seconds) {
  row.seconds = seconds;
  return row;
}
/// TFLOP/s per device, counted as in Megatron.
Row in_tflops(Row row, double tflops) {
  const config::Run& run = row.run;
  const double flops =
      cost::training_flops(run.model, run.training.seq_length, run.training.global_batch_size,
                           run.parallel.tensor_model_parallel_size);
  return in_seconds(std::move(row), flops / (tflops * 1e12 * run.parallel.world_size));
}
/// Tokens per second per device.
Row in_tokens(Row row, double tokens) {
  const auto all = static_cast<double>(row.run.training.global_batch_size * row.run.training.seq_length);
  const int world = row.run.parallel.world_size;
  return in_seconds(std::move(row), all / (tokens * world));
}

}  // namespace

std::vector<Row> published_moe_rows() {
  const config::Model small = qwen3(48, 2048, 32, 768), large = qwen3(94, 4096, 64, 1536);
  const std::vector<std::string> few_modules{"layernorm", "moe_act"}, more_modules{"layernorm", "moe"};
  const Layout on_16{16, 1, 1, 1, 16, 1024}, on_256{256, 2, 8, 4, 32, 2048, true, few_modules};
  const auto long_sequences = [&](int context) {
    return Layout{256, 4, 8, 4, 8, 256, true, more_modules, context, std::int64_t{16384} * context};
  };
  const cost::Execution plain_run, overlap{.dispatch_overlap = true}, once_per_node{.once_per_node = true},
      both{.dispatch_overlap = true, .once_per_node = true};
  return {
      // Megatron Core 0.9's README; layout of Megatron-MoE-ModelZoo.
      in_tflops(row_of("Mixtral 8x7B, 64 GPUs", mixtral(32, 4096, 32, 14336), {64, 1, 4, 8, 8, 256}, {}),
                468),
      // Megatron-MoE-ModelZoo, best_practice/Mixtral.
      in_tflops(row_of("Mixtral 8x22B, 128 GPUs", mixtral(56, 6144, 48, 16384), {128, 2, 8, 1, 8, 256},
                       {.tensor_overlap = true}),
                455),
      // Megatron-MoE-ModelZoo, best_practice/qwen3.
      in_seconds(
          row_of("Qwen3 235B, 256 GPUs, EP 8", large, {256, 2, 32, 3, 8, 2048, true, few_modules}, plain_run),
          24.2),
      in_seconds(row_of("Qwen3 235B, 256 GPUs, TP 4 EP 8, DeepEP", large, {256, 4, 8, 4, 8, 2048, true},
                        once_per_node),
                 29.0),
      in_seconds(row_of("Qwen3 235B, 256 GPUs, EP 32, DeepEP", large, on_256, once_per_node), 19.7),
      in_seconds(row_of("Qwen3 235B, 256 GPUs, EP 32, DeepEP, overlap", large, on_256, both), 17.6),
      in_tflops(row_of("Qwen3 235B, 16k tokens, DeepEP", large, long_sequences(1), once_per_node), 295),
      in_tflops(row_of("Qwen3 235B, 32k tokens, CP 2, DeepEP", large, long_sequences(2), once_per_node), 335),
      in_tflops(row_of("Qwen3 235B, 64k tokens, CP 4, DeepEP", large, long_sequences(4), once_per_node), 368),
      in_tflops(row_of("Qwen3 235B, 128k tokens, CP 8, DeepEP", large, long_sequences(8), once_per_node),
                389),
      // Megatron-Bridge, skills/nemo-mbridge-perf-expert-parallel-overlap.
      in_seconds(row_of("Qwen3 30B, 16 GPUs", small, on_16, plain_run), 41.25),
      in_seconds(row_of("Qwen3 30B, 16 GPUs, overlap", small, on_16, overlap), 31.31),
      in_seconds(row_of("Qwen3 30B, 16 GPUs, HybridEP", small, on_16, once_per_node), 24.71),
      in_seconds(row_of("Qwen3 30B, 16 GPUs, HybridEP, overlap", small, on_16, both), 20.99),
      // Megatron-Bridge's performance summary, 26.02.
      in_tokens(
          row_of("GPT-OSS 120B, 64 GPUs", gpt_oss_120b(), {64, 1, 4, 1, 8, 1280}, {.fused_scores = true}),
          5993),
  };
}

}  // namespace colonnade::planner
