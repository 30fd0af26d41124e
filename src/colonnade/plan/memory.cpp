// Adds up local shapes and walks the schedule.
#include "colonnade/plan/memory.h"

#include <algorithm>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/plan/buckets.h"
#include "colonnade/plan/flops.h"
#include "colonnade/plan/mesh.h"
#include "colonnade/plan/params/gpt.h"
#include "colonnade/plan/releases.h"

namespace colonnade::plan {
namespace {

constexpr std::int64_t kFp32 = 4;

/// Calls f(spec, tied) for every parameter of a stage, copies of the word embeddings included, in forward
/// order.
template <typename F>
void for_each_held(const config::Run& run, const StageBlocks& stage, bool has_embedding, F&& f) {
  const bool shared = run.model.word_embeddings_shared();
  const auto plain = [&](const ParamSpec& spec) { f(spec, false); };
  if (stage.embedding) {
    const EmbeddingParams embedding = embedding_params(run.model, run.parallel);
    f(embedding.word, shared);
    for_each(embedding.position, plain);
  }
  for (std::int64_t i = 0; i < stage.num_layers; ++i)
    for_each(layer_params(run.model, run.parallel, stage.first_layer + i), plain);
  if (!stage.head) return;
  for_each(head_params(run.model, run.parallel), plain);
  if (shared && !has_embedding) f(embedding_params(run.model, run.parallel).word, true);
}

Replicas replicas_of(const Mesh& mesh) {
  return {mesh.size(data_axes(Family::kDense)), mesh.size(data_axes(Family::kExpert))};
}

/// The flat buffers of the rank that holds `stages`.
FlatLayout flat_layout(const config::Run& run, const Mesh& mesh, const std::vector<StageBlocks>& stages) {
  const auto embeds = [](const StageBlocks& s) { return s.embedding; };
  const bool has_embedding = std::any_of(stages.begin(), stages.end(), embeds);
  std::vector<std::vector<FlatParam>> chunks;
  for (const StageBlocks& stage : stages) {
    std::vector<FlatParam>& chunk = chunks.emplace_back();
    for_each_held(run, stage, has_embedding, [&](const ParamSpec& spec, bool tied) {
      if (!spec.trained) return;
      const Shard part = shard(spec, mesh.position(0));
      chunk.push_back({part.numel(), tied ? FurtherSum::kTied : further_sum(spec, part, mesh.size(Axis::kTp)),
                       spec.family});
    });
  }
  const Replicas replicas = replicas_of(mesh);
  return lay_out(chunks, bucket_elements(run.parallel, replicas.dense), replicas);
}

/// Bytes of optimizer state per element that a rank updates.
std::int64_t optimizer_bytes(const config::Run& run) {
  const bool main_copy = run.model.params_dtype != config::ParamsDtype::kFloat32;
  const bool adam = run.optimizer.optimizer == config::OptimizerKind::kAdam;
  const std::int64_t moments = adam ? 2 : run.optimizer.sgd_momentum != 0 ? 1 : 0;
  return kFp32 * (moments + (main_copy ? 1 : 0));
}

/// Cosines and sines of the rotary positions, of each base that a layer of these stages has.
std::int64_t table_bytes(const config::Run& run, const std::vector<StageBlocks>& stages) {
  const config::Model& m = run.model;
  if (!m.rotary()) return 0;
  const std::int64_t length = std::max(run.training.seq_length, m.max_position_embeddings);
  std::set<bool> bases;
  const auto add = [&](std::int64_t layer) { bases.insert(m.rotary_base_local && window_of(m, layer) > 0); };
  for (const StageBlocks& stage : stages) {
    for (std::int64_t i = 0; i < stage.num_layers; ++i) add(stage.first_layer + i);
    if (stage.head && m.mtp_num_layers > 0) add(m.num_layers);
  }
  return static_cast<std::int64_t>(bases.size()) * length * m.rotary_channels() * kFp32;
}

/// Fills in what lies between steps.
void hold_parameters(const config::Run& run, const Mesh& mesh, StageMemory& memory) {
  const FlatLayout layout = flat_layout(run, mesh, memory.stages);
  for (const FlatEntry& entry : layout.entries) memory.num_parameters += entry.numel;
  memory.parameters = layout.size * element_size(run.model);
  memory.gradients = layout.size * kFp32;
  const Replicas shards = run.parallel.use_distributed_optimizer ? replicas_of(mesh) : Replicas();
  memory.optimizer = largest_shard(layout, shards) * optimizer_bytes(run);
  memory.tables = table_bytes(run, memory.stages);
}

/// Most micro-batches that are between their first and their last forward pass on a rank of `chunks`.
std::int64_t most_batches(const Program& program, int chunks) {
  std::int64_t now = 0;
  std::int64_t most = 0;
  for (const Action& a : program) {
    if (a.act != Do::kForward) continue;
    if (a.chunk == 0) most = std::max(most, ++now);
    if (a.chunk == chunks - 1) --now;
  }
  return most;
}

/// Most messages of forward passes alone that have left and not surely arrived, before the last of them
/// leaves.
std::int64_t most_messages(const Schedule& schedule, int rank) {
  const Program& program = schedule.programs[static_cast<std::size_t>(rank)];
  const auto arrived = releases(schedule, rank);
  std::set<std::size_t> open;
  std::size_t most = 0;
  for (std::size_t i = 0; i < program.size(); ++i) {
    if (program[i].act == Do::kForward) most = std::max(most, open.size());
    if (program[i].act == Do::kSendActivation) open.insert(i);
    if (program[i].act == Do::kRecvActivation)
      for (const std::size_t send : arrived[i]) open.erase(send);
  }
  return static_cast<std::int64_t>(most);
}

/// Most bytes of kept activations and of batches while the program runs.
std::int64_t peak_activations(const config::Run& run, const std::vector<StageBlocks>& stages,
                              const Program& program) {
  std::vector<std::int64_t> bytes, waiting;
  for (const StageBlocks& stage : stages) {
    bytes.push_back(stage_activations(run, stage));
    waiting.push_back(stage_waiting(run, stage));
  }
  const std::int64_t batch = batch_bytes(run);
  const int last = static_cast<int>(stages.size()) - 1;
  std::int64_t now = 0;
  std::int64_t most = 0;
  for (const Action& a : program) {
    const std::int64_t kept = bytes[static_cast<std::size_t>(a.chunk)];
    const std::int64_t wait = waiting[static_cast<std::size_t>(a.chunk)];
    if (a.act == Do::kForward) now += kept + (a.chunk == 0 ? batch : 0);
    most = std::max(most, now);
    if (a.act == Do::kForward && a.chunk == last) now -= batch;
    if (a.act == Do::kBackward) now -= kept;
    if (a.act == Do::kBackwardInput) now += wait - kept;
    if (a.act == Do::kBackwardWeight) now -= wait;
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
                    "{} for {} * {}; use {}",
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

std::vector<StageMemory> plan_resident(const config::Run& run) {
  const Mesh mesh(run.parallel);
  const int ranks = run.parallel.pipeline_model_parallel_size;
  std::vector<StageMemory> plan;
  for (int rank = 0; rank < ranks; ++rank) {
    StageMemory memory;
    memory.stages = stages_of_rank(run.model, run.parallel, rank);
    hold_parameters(run, mesh, memory);
    plan.push_back(std::move(memory));
  }
  return plan;
}

void add_activations(const config::Run& run, const Schedule& schedule, const ScheduleReport& report,
                     std::vector<StageMemory>& plan) {
  for (std::size_t rank = 0; rank < plan.size(); ++rank) {
    StageMemory& memory = plan[rank];
    const Program& program = schedule.programs[rank];
    memory.activations = peak_activations(run, memory.stages, program);
    for (const StageBlocks& stage : memory.stages) {
      memory.working = std::max(memory.working, stage_working(run, stage));
      memory.evaluation = std::max(memory.evaluation, stage_evaluation(run, stage));
    }
    memory.evaluation += most_batches(program, schedule.chunks) * batch_bytes(run) +
                         most_messages(schedule, static_cast<int>(rank)) * message_bytes(run);
    memory.peak_live = report.peak_live[rank];
  }
}

std::vector<StageMemory> plan_memory(const config::Run& run) {
  const Schedule schedule = schedule_of(run);
  const ScheduleReport report = check(schedule);
  COL_CHECK(report.faults.empty(), "schedule: must be sound; got {}; correct its function", report.faults[0]);
  std::vector<StageMemory> plan = plan_resident(run);
  add_activations(run, schedule, report, plan);
  return plan;
}

namespace {

/// Of the multi-latent attention of a layer, as Megatron's estimate counts it.
double latent_parameters(const config::Model& m, double norm) {
  const auto real = [](auto value) { return static_cast<double>(value); };
  const double h = real(m.hidden_size), n = real(m.num_attention_heads), d = real(m.kv_channels);
  const double q = real(m.latent.q_lora_rank), c = real(m.latent.kv_lora_rank), v = real(m.latent.v_head_dim);
  return (q > 0 ? q * (h + n * d + norm) : h * n * d) +
         c * (h + n * (real(m.latent.qk_head_dim) + v) + norm) + h * real(m.latent.qk_pos_emb_head_dim) +
         n * v * h;
}

}  // namespace

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

  const double attention = m.latent.enabled
                               ? latent_parameters(m, norm)
                               : 2 * h * h * (1 + groups / heads) * (real(m.kv_channels) * heads / h);
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
