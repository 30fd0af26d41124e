// Adds up local shapes and walks the schedule.
#include "colonnade/plan/memory.h"

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/plan/flops.h"
#include "colonnade/plan/mesh.h"
#include "colonnade/plan/params/gpt.h"

namespace colonnade::plan {
namespace {

constexpr std::int64_t kFp32 = 4;

std::int64_t element_size(const config::Model& model) {
  return model.params_dtype == config::ParamsDtype::kFloat32 ? 4 : 2;
}

/// Sizes of one micro-batch on one rank.
struct Tokens {
  explicit Tokens(const config::Run& run)
      : tp(run.parallel.tensor_model_parallel_size),
        all(run.training.micro_batch_size * run.training.seq_length / run.parallel.context_parallel_size),
        rows(run.parallel.sequence_parallel ? all / tp : all),
        element(element_size(run.model)) {}
  std::int64_t tp;
  std::int64_t all;   ///< n: tokens in the tensor-parallel stretches
  std::int64_t rows;  ///< r: tokens between them
  std::int64_t element;
};

/// Bytes kept of a norm over `rows`: its statistics.
std::int64_t norm_statistics(const config::Model& m, std::int64_t rows) {
  return rows * kFp32 * (m.normalization == config::Normalization::kLayerNorm ? 2 : 1);
}

std::int64_t layer_activations(const config::Run& run, const Tokens& t) {
  const config::Model& m = run.model;
  const std::int64_t heads = m.num_attention_heads / t.tp;
  const std::int64_t groups = std::max<std::int64_t>(1, m.num_query_groups / t.tp);
  const std::int64_t q = heads * m.kv_channels;
  const std::int64_t kv = groups * m.kv_channels;
  const std::int64_t copies = run.training.micro_batch_size > 1 ? 2 : 1;
  std::int64_t bytes = t.rows * m.hidden_size * t.element * 4 + 2 * norm_statistics(m, t.rows);
  bytes += t.all * t.element * (q + 2 * kv + copies * q) + t.all * kFp32 * heads;
  if (m.qk_layernorm) bytes += t.all * t.element * (q + kv) + norm_statistics(m, t.all * (heads + groups));
  if (m.attention_dropout > 0) bytes += 2 * t.element * t.all * run.training.seq_length * heads;
  return bytes + t.all * t.element * (m.ffn_hidden_size / t.tp) * (m.gated() ? 3 : 2);
}

std::int64_t head_activations(const config::Run& run, const Tokens& t) {
  const config::Model& m = run.model;
  const std::int64_t vocabulary = padded_vocab_size(m, run.parallel.tensor_model_parallel_size) / t.tp;
  return 2 * t.rows * m.hidden_size * t.element + norm_statistics(m, t.rows) +
         t.all * vocabulary * t.element + 16 * t.all;
}

/// Largest gradients alive at once inside one block: those of the feed-forward part with the gathered
/// rows, or the head's.
std::int64_t working_bytes(const config::Run& run, const std::vector<StageBlocks>& stages) {
  const Tokens t(run);
  const config::Model& m = run.model;
  std::int64_t most = 0;
  for (const StageBlocks& stage : stages) {
    const std::int64_t width = 2 * m.hidden_size;
    if (stage.num_layers > 0) {
      const std::int64_t ffn = m.ffn_hidden_size / t.tp * (m.gated() ? 3 : 2);
      most = std::max(most, t.all * t.element * (width + ffn));
    }
    if (stage.head || stage.embedding) most = std::max(most, t.all * t.element * width);
  }
  return most;
}

/// Calls f(spec) for every parameter of the stages of one rank, tied copies included.
template <typename F>
void for_each_held(const config::Run& run, const std::vector<StageBlocks>& stages, F&& f) {
  const auto embeds = [](const StageBlocks& s) { return s.embedding; };
  const bool has_embedding = std::any_of(stages.begin(), stages.end(), embeds);
  for (const StageBlocks& stage : stages) {
    if (stage.embedding) for_each(embedding_params(run.model, run.parallel), f);
    for (std::int64_t i = 0; i < stage.num_layers; ++i) {
      for_each(layer_params(run.model, run.parallel, stage.first_layer + i), f);
    }
    if (!stage.head) continue;
    const HeadParams head = head_params(run.model, run.parallel);
    for_each(head, f);
    if (!head.output && !has_embedding) f(embedding_params(run.model, run.parallel).word);
  }
}

std::int64_t optimizer_bytes(const config::Run& run, const Mesh& mesh, std::int64_t parameters) {
  const bool main_copy = run.model.params_dtype != config::ParamsDtype::kFloat32;
  const bool adam = run.optimizer.optimizer == config::OptimizerKind::kAdam;
  const std::int64_t moments = adam ? 2 : run.optimizer.sgd_momentum != 0 ? 1 : 0;
  const std::int64_t shards = run.parallel.use_distributed_optimizer ? mesh.size({Axis::kDp, Axis::kCp}) : 1;
  return (parameters + shards - 1) / shards * kFp32 * (moments + (main_copy ? 1 : 0));
}

/// Most bytes of kept activations while the program runs.
std::int64_t peak_activations(const config::Run& run, const std::vector<StageBlocks>& stages,
                              const Program& program) {
  std::vector<std::int64_t> bytes;
  for (const StageBlocks& stage : stages) bytes.push_back(stage_activations(run, stage));
  std::int64_t now = 0;
  std::int64_t most = 0;
  for (const Action& a : program) {
    if (a.act == Do::kForward) now += bytes[static_cast<std::size_t>(a.chunk)];
    if (a.act == Do::kBackward) now -= bytes[static_cast<std::size_t>(a.chunk)];
    most = std::max(most, now);
  }
  return most;
}

/// Micro-batches per step and data-parallel rank.
int microbatches_of(const config::Run& run) {
  const std::int64_t together = run.training.micro_batch_size * run.parallel.data_parallel_size();
  const std::int64_t global = run.training.global_batch_size;
  if (global == 0) return 1;
  if (together < 1 || global % together != 0) {
    throw ConfigError(
        fmt::format("--global-batch-size: must be a multiple of micro-batch size * data-parallel size; got "
                    "{} for {} * {}; "
                    "use {}",
                    global, run.training.micro_batch_size, run.parallel.data_parallel_size(),
                    together < 1 ? 1 : (global / together + 1) * together));
  }
  return static_cast<int>(global / together);
}

}  // namespace

Schedule schedule_of(const config::Run& run) {
  const auto stages = split_stages(run.model, run.parallel);
  const int chunks = static_cast<int>(stages.size()) / run.parallel.pipeline_model_parallel_size;
  return make_schedule(run.parallel, chunks, microbatches_of(run));
}

std::int64_t stage_activations(const config::Run& run, const StageBlocks& stage) {
  const Tokens t(run);
  const std::int64_t kept = stage.num_layers * layer_activations(run, t);
  if (stage.head) return kept + head_activations(run, t);
  return kept + t.rows * run.model.hidden_size * t.element;
}

std::vector<StageMemory> plan_memory(const config::Run& run) {
  const Mesh mesh(run.parallel);
  const std::vector<StageBlocks> stages = split_stages(run.model, run.parallel);
  const Schedule schedule = schedule_of(run);
  const ScheduleReport report = check(schedule);
  COL_CHECK(report.faults.empty(), "schedule: must be sound; got {}; correct its function", report.faults[0]);
  const int ranks = schedule.ranks;
  std::vector<StageMemory> plan;
  for (int rank = 0; rank < ranks; ++rank) {
    StageMemory memory;
    for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
      memory.stages.push_back(stages[static_cast<std::size_t>(chunk) * static_cast<std::size_t>(ranks) +
                                     static_cast<std::size_t>(rank)]);
    }
    for_each_held(run, memory.stages, [&](const ParamSpec& spec) {
      memory.num_parameters += shard(spec, 0, mesh.size(spec.split_axis)).numel();
    });
    memory.parameters = memory.num_parameters * element_size(run.model);
    memory.gradients = memory.num_parameters * kFp32;
    memory.optimizer = optimizer_bytes(run, mesh, memory.num_parameters);
    memory.activations =
        peak_activations(run, memory.stages, schedule.programs[static_cast<std::size_t>(rank)]);
    memory.working = working_bytes(run, memory.stages);
    memory.peak_live = report.peak_live[static_cast<std::size_t>(rank)];
    plan.push_back(std::move(memory));
  }
  return plan;
}

TheoreticalMemory theoretical_memory(const config::Run& run, bool selective_recompute) {
  const config::Model& m = run.model;
  const auto real = [](auto value) { return static_cast<double>(value); };
  const double tp = run.parallel.tensor_model_parallel_size;
  const double pp = run.parallel.pipeline_model_parallel_size;
  const double h = real(m.hidden_size), layers = real(m.num_layers), ffn = real(m.ffn_hidden_size);
  const double vocabulary = real(padded_vocab_size(m, run.parallel.tensor_model_parallel_size));
  const double heads = real(m.num_attention_heads), groups = real(m.num_query_groups);
  const double norm = m.normalization == config::Normalization::kLayerNorm ? 2 : 1;
  const bool untied = m.untie_embeddings_and_output_weights;

  const double attention = 2 * h * h * (1 + groups / heads) * (real(m.kv_channels) * heads / h);
  const double mlp = 2 * h * ffn * (m.gated() ? 1.5 : 1);
  const double whole = 2 * h * norm * layers + h * norm;
  double parameters = ((attention + mlp) * layers / pp + h * vocabulary) / tp + whole / pp;
  if (untied && pp == 1) parameters += h * vocabulary / tp;
  const double per_parameter =
      run.parallel.use_distributed_optimizer ? 6 + 12.0 / run.parallel.data_parallel_size() : 18;

  const double sb = real(run.training.seq_length * run.training.micro_batch_size);
  const int chunks = static_cast<int>(split_stages(m, run.parallel).size()) / static_cast<int>(pp);
  double layer_bytes = selective_recompute ? sb * h * (18 + 4 * ffn / h) : sb * h * (10 + 24 / tp);
  double activations = layer_bytes * layers + 8 * sb * pp + sb * h * pp;
  if (chunks > 1)
    activations *= 1 + (pp - 1) / (pp * chunks);
  else if (pp > 1)
    activations *= std::min(1.0, microbatches_of(run) / pp);
  if (pp == 1)
    activations +=
        selective_recompute ? sb * h * 4 * (1 + vocabulary / h) : 2 * (sb * vocabulary / tp + sb * h);
  activations *= selective_recompute ? 1 / tp : 1.05;
  return {.weights_and_optimizer = parameters * per_parameter, .activations = activations};
}

}  // namespace colonnade::plan
