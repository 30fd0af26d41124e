// Published rows, and the search for settings that they leave open.
#include "published.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "colonnade/base/error.h"
#include "colonnade/config/derive.h"
#include "colonnade/cost/memory.h"
#include "colonnade/rules/rules.h"

namespace colonnade::planner {
namespace {

config::Run complete(config::Run run, int world, int tensor, int pipeline) {
  config::Parallel& p = run.parallel;
  p.world_size = world;
  p.tensor_model_parallel_size = tensor;
  p.pipeline_model_parallel_size = pipeline;
  p.sequence_parallel = tensor > 1;
  p.use_distributed_optimizer = p.overlap_grad_reduce = p.overlap_param_gather = true;
  run.training.device = "cuda";
  run.model.params_dtype = config::Dtype::kBfloat16;
  run.model.hidden_dropout = run.model.attention_dropout = 0;
  return run;
}

struct Megatron {
  const char* name;
  std::int64_t hidden, layers, heads;
  int tensor, pipeline, world;
  std::int64_t batch;
  double tflops;  ///< per GPU, with full attention FLOPs
  bool calibrated;
};

/// README of Megatron-LM at core r0.8 (images/model_table.png) and its strong-scaling figure, from 47 % to 42
/// % of 989.4 TFLOP/s: GPT with ffn size 4 h, untied embeddings, 4,096 tokens, vocabulary 131,072,
/// --overlap-grad-reduce, --overlap-param-gather and --tp-comm-overlap.
constexpr Megatron kMegatron[] = {
    {"Megatron 1.7B, 48 GPUs", 2048, 24, 16, 1, 1, 48, 192, 408.8, false},
    {"Megatron 7.1B, 96 GPUs", 4096, 30, 32, 2, 1, 96, 192, 465.9, false},
    {"Megatron 16B, 192 GPUs", 6144, 32, 48, 4, 1, 192, 192, 489.1, true},
    {"Megatron 32B, 384 GPUs", 7168, 48, 56, 8, 1, 384, 192, 459.6, false},
    {"Megatron 70B, 768 GPUs", 8192, 84, 64, 8, 2, 768, 384, 419.7, false},
    {"Megatron 119B, 1536 GPUs", 10240, 92, 80, 8, 4, 1536, 768, 420.5, false},
    {"Megatron 177B, 2304 GPUs", 12288, 96, 96, 8, 6, 2304, 1152, 432.8, true},
    {"Megatron 314B, 3072 GPUs", 16384, 96, 128, 8, 8, 3072, 1536, 474.4, false},
    {"Megatron 462B, 6144 GPUs", 18432, 112, 144, 8, 16, 6144, 3072, 459.9, false},
    {"Megatron 177B, 96 GPUs", 12288, 96, 96, 8, 6, 96, 1152, 0.47 * 989.4, false},
    {"Megatron 177B, 4608 GPUs", 12288, 96, 96, 8, 6, 4608, 1152, 0.42 * 989.4, false},
};

Row row_of(const Megatron& m) {
  Row row{.name = m.name, .hardware = "h100", .calibrated = m.calibrated};
  row.run = complete({}, m.world, m.tensor, m.pipeline);
  row.run.model.num_layers = m.layers;
  row.run.model.hidden_size = m.hidden;
  row.run.model.num_attention_heads = m.heads;
  row.run.model.vocab_size = 131072;
  row.run.model.untie_embeddings_and_output_weights = true;
  row.run.model.position_embedding = config::PositionEmbedding::kRope;
  row.run.training.seq_length = 4096;
  row.run.training.global_batch_size = m.batch;
  row.execution.tensor_overlap = m.tensor > 1;
  const auto h = static_cast<double>(m.hidden), layers = static_cast<double>(m.layers);
  const double per_token = 72 * layers * h * h + 6 * 131072 * h + 12 * layers * h * 4096;
  row.seconds = per_token * 4096 * static_cast<double>(m.batch) / (m.tflops * 1e12 * m.world);
  return row;
}

/// torchtitan's benchmarks of December 2024 (FSDP) and June 2025 (with TP 8): Llama 3.1, 8,192 tokens.
struct Titan {
  const char* name;
  bool large;  ///< 70B
  int tensor, world;
  std::int64_t local_batch;
  bool full_recompute;  ///< full recomputation; else torchtitan's selective "op"
  bool compiled, async;
  double tokens;  ///< per second and GPU
  bool calibrated;
};
constexpr Titan kTitan[] = {
    {"torchtitan 8B, 8 GPUs, eager", false, 1, 8, 2, false, false, false, 5762, false},
    {"torchtitan 8B, 8 GPUs", false, 1, 8, 2, false, true, false, 6667, true},
    {"torchtitan 8B, 128 GPUs, eager", false, 1, 128, 2, false, false, false, 5605, false},
    {"torchtitan 8B, 128 GPUs", false, 1, 128, 2, false, true, false, 6514, false},
    {"torchtitan 8B, 64 GPUs, TP 8", false, 8, 64, 12, false, true, false, 4378, false},
    {"torchtitan 8B, 64 GPUs, TP 8, async", false, 8, 64, 12, false, true, true, 4809, false},
    {"torchtitan 70B, 256 GPUs, TP 8", true, 8, 256, 16, true, true, false, 597, false},
    {"torchtitan 70B, 256 GPUs, TP 8, async", true, 8, 256, 16, true, true, true, 652, false},
};

/// Memory traffic of eager programs relative to the fused kernels, counted and not fitted: RMSNorm with its
/// casts and the residual sum 42 bytes per element instead of 8, rotary embedding with casts and complex
/// numbers 5 times as much, SwiGLU in two kernels 10 bytes instead of 6; weighted by the bytes of a layer of
/// the 8B model.
constexpr double kEagerPasses = 3.4;

/// Full recomputation of every layer.
void recompute_all(config::Run& run) {
  run.recompute = {.granularity = "full", .method = "uniform", .num_layers = 1};
}

Row row_of(const Titan& t) {
  Row row{.name = t.name, .hardware = "h100-500w.yaml", .calibrated = t.calibrated};
  row.run = complete({}, t.world, t.tensor, 1);
  config::Model& m = row.run.model;
  m = llama_like(t.large ? 80 : 32, t.large ? 8192 : 4096, t.large ? 64 : 32, 8);
  m.ffn_hidden_size = t.large ? 28672 : 14336;
  m.vocab_size = 128256;
  row.run.training.seq_length = 8192;
  row.run.training.micro_batch_size = t.local_batch;
  row.run.training.global_batch_size = t.local_batch * t.world / t.tensor;
  row.run.parallel.use_megatron_fsdp = true;
  if (t.full_recompute) recompute_all(row.run);
  row.execution = {.op_recompute = !t.full_recompute,
                   .tensor_overlap = t.async,
                   .elementwise_passes = t.compiled ? 1 : kEagerPasses};
  row.seconds = static_cast<double>(t.local_batch) * 8192 / (t.tokens * t.tensor);
  return row;
}

double peak_bytes(const config::Run& run) {
  double peak = 0;
  for (const cost::StageMemory& m : cost::plan_memory(run))
    peak = std::max(peak, static_cast<double>(m.peak()));
  return peak;
}

}  // namespace

config::Model llama_like(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t groups) {
  config::Model m;
  m.num_layers = layers;
  m.hidden_size = hidden;
  m.num_attention_heads = heads;
  m.num_query_groups = groups;
  m.position_embedding = config::PositionEmbedding::kRope;
  m.normalization = config::Normalization::kRmsNorm;
  m.activation = config::Activation::kSwiglu;
  m.add_bias_linear = false;
  m.untie_embeddings_and_output_weights = true;
  m.hidden_dropout = m.attention_dropout = 0;
  m.params_dtype = config::Dtype::kBfloat16;
  return m;
}

std::vector<Row> published_rows() {
  std::vector<Row> rows;
  for (const Megatron& m : kMegatron) rows.push_back(row_of(m));
  for (const Titan& t : kTitan) rows.push_back(row_of(t));
  for (Row& row : rows) config::derive(row.run);
  return rows;
}

namespace {

/// The row with every valid micro-batch size and number of virtual stages.
std::vector<config::Run> candidates_of(const Row& row) {
  std::vector<config::Run> runs;
  const std::int64_t per_rank = row.run.training.global_batch_size / row.run.parallel.data_parallel_size();
  const std::int64_t layers = row.run.model.num_layers / row.run.parallel.pipeline_model_parallel_size;
  for (std::int64_t micro = 1; micro <= per_rank; ++micro)
    for (std::int64_t chunks = 1; chunks <= layers; ++chunks) {
      config::Run run = row.run;
      run.training.micro_batch_size = micro;
      run.parallel.num_virtual_stages_per_pipeline_rank = chunks > 1 ? static_cast<int>(chunks) : 0;
      if (rules::check(run, rules::Purpose::kPlan).empty()) runs.push_back(std::move(run));
    }
  return runs;
}

}  // namespace

Prediction predict(const Row& row, const std::string& folder) {
  const bool own = row.hardware.ends_with(".yaml");
  const cost::Hardware hardware = cost::read_hardware(own ? folder + "/" + row.hardware : row.hardware);
  if (row.run.training.micro_batch_size > 0)
    return {row.run, row.execution, cost::estimate_step(row.run, hardware, row.execution)};
  std::optional<Prediction> best;
  for (config::Run& run : candidates_of(row))
    for (const bool recompute : {false, true}) {
      if (recompute) recompute_all(run);
      if (peak_bytes(run) > hardware.usable_bytes()) continue;
      const cost::StepTime time = cost::estimate_step(run, hardware, row.execution);
      if (!best || time.step < best->time.step) best = {run, row.execution, time};
    }
  if (!best) throw Error(fmt::format("{}: some layout must fit; got none; correct the row", row.name));
  return *best;
}

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto ranks = [](const std::vector<double>& values) {
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](auto i, auto j) { return values[i] < values[j]; });
    std::vector<double> rank(values.size());
    for (std::size_t i = 0; i < order.size(); ++i) rank[order[i]] = static_cast<double>(i);
    return rank;
  };
  const std::vector<double> ra = ranks(a), rb = ranks(b);
  const auto n = static_cast<double>(a.size());
  double squares = 0;
  for (std::size_t i = 0; i < ra.size(); ++i) squares += (ra[i] - rb[i]) * (ra[i] - rb[i]);
  return 1 - 6 * squares / (n * (n * n - 1));
}

}  // namespace colonnade::planner
