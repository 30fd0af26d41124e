// See search_space.h.
#include "colonnade/cost/search_space.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "colonnade/config/parse.h"
#include "colonnade/layout/layer_kind.h"
#include "colonnade/layout/layout_string.h"
#include "colonnade/schedule/kinds.h"

namespace colonnade::cost {
namespace {

constexpr int kMaxTensorRanks = 64, kMaxContextRanks = 16;
constexpr int kMaxChunks = 16;
constexpr std::int64_t kMaxMicroBatch = 16;
/// Keys of data-parallel sharding settings.
constexpr const char* kOptimizer = "use_distributed_optimizer";
constexpr const char* kFsdp = "use_megatron_fsdp";
constexpr const char* kStrategy = "data_parallel_sharding_strategy";
constexpr const char* kReshard = "torch_fsdp2_reshard_after_forward";
constexpr const char* kInstances = "num_distributed_optimizer_instances";
constexpr const char* kOuter = "outer_dp_sharding_strategy";
constexpr const char* kGather = "overlap_param_gather";
constexpr const char* kReduce = "overlap_grad_reduce";

std::vector<int> divisors(std::int64_t number) {
  std::vector<int> all;
  for (int d = 1; d <= number; ++d)
    if (number % d == 0) all.push_back(d);
  return all;
}

/// ReplicaCounts of a dense parameter.
int replicas_of(const config::Run& run, const LayoutChoice& c) {
  return run.parallel.world_size / (c.tensor * c.pipeline);
}

void add_cp_comm_types(const config::Run& run, LayoutChoice c, std::vector<LayoutChoice>& out) {
  if (c.context == 1 && !run.parallel.hybrid_context_parallel) return out.push_back(c);
  for (const char* cp_comm_type : {"p2p", "a2a"}) {
    c.cp_comm_type = cp_comm_type;
    out.push_back(c);
  }
}

/// With hybrid context parallelism the context size only sets the maximum number of tokens per rank, if that
/// is not given.
void add_contexts(const config::Run& run, LayoutChoice c, std::vector<LayoutChoice>& out) {
  const config::Parallel& p = run.parallel;
  if (p.hybrid_context_parallel && p.max_seqlen_per_dp_cp_rank > 0) return add_cp_comm_types(run, c, out);
  for (const int context : divisors(replicas_of(run, c))) {
    if (context > kMaxContextRanks) break;
    c.context = context;
    add_cp_comm_types(run, c, out);
  }
}

/// Expert sizes of MoE models, with and without expert tensor parallelism.
void add_experts(const config::Run& run, LayoutChoice c, std::vector<LayoutChoice>& out) {
  c.etp = c.tensor;  // the default
  if (run.model.moe.num_experts == 0) return add_contexts(run, c, out);
  const int ranks = run.parallel.world_size / c.pipeline;
  const std::vector<int> expert_tensor_sizes = c.tensor == 1 ? std::vector{1} : std::vector{1, c.tensor};
  for (const int expert : divisors(run.model.moe.num_experts)) {
    for (const int etp : expert_tensor_sizes) {
      if (ranks % (expert * etp) != 0) continue;
      c.ep = expert;
      c.etp = etp;
      for (const auto dispatcher :
           {config::TokenDispatcher::kAllToAll, config::TokenDispatcher::kAllGather}) {
        c.dispatcher = dispatcher;
        add_contexts(run, c, out);
        if (expert * etp == 1) break;  // no dispatch between ranks
      }
    }
  }
}

/// Schedules for `c.chunks` virtual stages per rank.
void add_schedules(const config::Run& run, LayoutChoice c, std::vector<LayoutChoice>& out) {
  add_experts(run, c, out);
  for (const schedule::ScheduleKind& kind : schedule::schedule_kinds()) {
    if (!kind.splits_backward || !schedule::supports(kind, c.chunks)) continue;
    c.schedule = kind.name;
    add_experts(run, c, out);
  }
}

/// The most even layout string if no split of this pipeline size is even, with one virtual stage, and with
/// two for the schedules that need them.
void add_layouts(const config::Run& run, LayoutChoice c, std::vector<LayoutChoice>& out) {
  const std::int64_t layers = run.model.total_layers(), over = layers % c.pipeline;
  if (over == 0 || over + 2 >= c.pipeline) return;
  c.count_embedding = c.count_loss = false;
  for (c.chunks = 1; c.chunks <= 2 && c.chunks * c.pipeline <= layers; ++c.chunks) {
    c.layout = layout::even_layout(run.model, std::int64_t{c.pipeline} * c.chunks, /*ends_count=*/true);
    add_schedules(run, c, out);
  }
}

/// Stage splits of one tensor and pipeline size.
void add_stages(const config::Run& run, LayoutChoice c, std::vector<LayoutChoice>& out) {
  if (c.pipeline == 1) return add_experts(run, c, out);
  for (const bool embedding : {false, true}) {
    for (const bool loss : {false, true}) {
      c.count_embedding = embedding;
      c.count_loss = loss;
      const std::int64_t slots = run.model.total_layers() + (embedding ? 1 : 0) + (loss ? 1 : 0);
      const auto most = std::clamp<std::int64_t>(slots / c.pipeline, 1, kMaxChunks);
      for (c.chunks = 1; c.chunks <= most; ++c.chunks) add_schedules(run, c, out);
    }
  }
  add_layouts(run, c, out);
}

/// Sharding strategies to try. A single replica has none unless the user asks for one. --deterministic-mode
/// shards gradients in any case, which leaves fewer options.
std::vector<layout::Sharding> sharding_options(const config::Run& run, int replicas) {
  const config::Parallel& p = run.parallel;
  const bool fsdp = config::is_from_command_line(run, kFsdp) && p.use_megatron_fsdp;
  const bool no_fsdp = config::is_from_command_line(run, kFsdp) && !p.use_megatron_fsdp;
  if (config::is_from_command_line(run, kStrategy)) {
    config::Parallel asked = p;
    asked.use_megatron_fsdp = !no_fsdp;
    return {layout::sharding_of(asked)};
  }
  if (replicas == 1) return {layout::Sharding::kNone};
  const bool with = config::is_from_command_line(run, kOptimizer) && p.use_distributed_optimizer;
  const bool without = config::is_from_command_line(run, kOptimizer) && !p.use_distributed_optimizer;
  std::vector<layout::Sharding> all;
  if (!with && (without || !p.deterministic_mode)) all.push_back(layout::Sharding::kNone);
  if (!without || fsdp) all.push_back(layout::Sharding::kOptimizer);
  if (!no_fsdp && !p.deterministic_mode) all.push_back(layout::Sharding::kGradients);
  if (!no_fsdp) all.push_back(layout::Sharding::kParameters);
  return all;
}

/// Number of nodes over which the replicas of a parameter are spread evenly; 1 if a node holds one or all of
/// them, or expert replicas do not divide.
int nodes_of_replicas(const config::Run& run, const LayoutChoice& c, int devices_per_node) {
  const int replicas = replicas_of(run, c), block = c.tensor * c.context;
  const int stride = run.parallel.use_tp_pp_dp_mapping ? block * c.pipeline : block;
  int in_node = 0;
  while (in_node < replicas &&
         c.tensor * (in_node % c.context) + stride * (in_node / c.context) < devices_per_node)
    ++in_node;
  if (in_node < 2 || replicas % in_node != 0) return 1;
  const int copies = run.parallel.world_size / (c.etp * c.ep * c.pipeline);
  const int nodes = replicas / in_node;
  return run.model.moe.num_experts > 0 && copies % nodes != 0 ? 1 : nodes;
}

/// Sets the sharding with the simplest flags, keeping those typed.
void apply_data_sharding(const config::Run& base, const DataSharding& data_sharding, config::Parallel& p) {
  const bool strategy = config::is_from_command_line(base, kStrategy);
  if (!config::is_from_command_line(base, kFsdp))
    p.use_megatron_fsdp = strategy || data_sharding.sharding >= layout::Sharding::kGradients;
  const bool either =
      p.use_megatron_fsdp &&
      data_sharding.sharding != layout::Sharding::kNone;  // --use-distributed-optimizer adds nothing then
  if (!either &&
      (!config::is_from_command_line(base, kOptimizer) || data_sharding.sharding == layout::Sharding::kNone))
    p.use_distributed_optimizer = data_sharding.sharding == layout::Sharding::kOptimizer;
  constexpr const char* kNames[] = {"no_shard", "optim", "optim_grads", "optim_grads_params"};
  if (!strategy)
    p.data_parallel_sharding_strategy = p.use_megatron_fsdp
                                            ? kNames[static_cast<int>(data_sharding.sharding)]
                                            : config::Parallel().data_parallel_sharding_strategy;
  p.overlap_param_gather = data_sharding.overlap_gather;
  p.torch_fsdp2_reshard_after_forward = !data_sharding.keep_gathered;
  p.num_distributed_optimizer_instances = data_sharding.instances;
  p.outer_dp_sharding_strategy = data_sharding.shard_outer ? "optim" : "no_shard";
}

}  // namespace

std::vector<LayoutChoice> all_layout_choices(const config::Run& run) {
  std::vector<LayoutChoice> choices;
  const int world = run.parallel.world_size;
  for (const int tensor : divisors(world)) {
    if (tensor > kMaxTensorRanks) break;
    for (const int pipeline : divisors(world / tensor)) {
      if (pipeline > run.model.total_layers() + 2) break;
      LayoutChoice c;
      c.tensor = tensor;
      c.pipeline = pipeline;
      add_stages(run, c, choices);
    }
  }
  return choices;
}

namespace {

/// Options of parameter all-gathers for one sharding: overlapped or not, kept gathered or not.
std::vector<DataSharding> gather_options(const config::Run& run, layout::Sharding sharding, int replicas) {
  const config::Parallel& p = run.parallel;
  const bool disabled = (config::is_from_command_line(run, kGather) && !p.overlap_param_gather) ||
                        (config::is_from_command_line(run, kReduce) &&
                         !p.overlap_grad_reduce);  // requires --overlap-grad-reduce
  const bool required = config::is_from_command_line(run, kGather) && p.overlap_param_gather;
  const bool overlap = sharding != layout::Sharding::kNone && replicas > 1 && !disabled;
  if (sharding < layout::Sharding::kParameters || replicas == 1)
    return {{.sharding = sharding, .overlap_gather = overlap}};
  const bool typed = config::is_from_command_line(run, kReshard),
             reshards = p.torch_fsdp2_reshard_after_forward;
  std::vector<DataSharding> options;
  if (!typed || !reshards)
    options.push_back({.sharding = sharding, .overlap_gather = overlap, .keep_gathered = true});
  if (!typed || reshards) options.push_back({.sharding = sharding, .overlap_gather = overlap});
  if ((!typed || reshards) && overlap && !required)
    options.push_back({.sharding = sharding, .overlap_gather = false});
  return options;
}

/// Whether to try sharding across instances as in `s`. `asked`: the typed setting. `several`: several numbers
/// of instances are tried.
bool is_tried(const DataSharding& s, std::optional<bool> asked, bool several) {
  const bool no_effect = s.shard_outer && (s.instances == 1 || s.sharding == layout::Sharding::kNone);
  if (!asked) return !no_effect;
  return s.shard_outer == *asked && !(no_effect && several && s.sharding != layout::Sharding::kNone);
}

}  // namespace

std::vector<DataSharding> all_data_shardings(const config::Run& run, const LayoutChoice& c,
                                             int devices_per_node) {
  const config::Parallel& p = run.parallel;
  const int replicas = replicas_of(run, c);
  std::vector<int> instances{1};
  if (config::is_from_command_line(run, kInstances))
    instances = {p.num_distributed_optimizer_instances};
  else if (const int nodes = nodes_of_replicas(run, c, devices_per_node); nodes > 1 && !p.deterministic_mode)
    instances.push_back(nodes);
  const auto given_outer = config::is_from_command_line(run, kOuter)
                               ? std::optional(p.outer_dp_sharding_strategy == "optim")
                               : std::nullopt;
  std::vector<DataSharding> all;
  const auto add = [&](DataSharding data_sharding) {
    for (const int number : instances) {
      for (const bool outer : {false, true}) {
        data_sharding.instances = number;
        data_sharding.shard_outer = outer;
        if (is_tried(data_sharding, given_outer, instances.size() > 1)) all.push_back(data_sharding);
      }
      if (data_sharding.sharding == layout::Sharding::kNone) break;
    }
  };
  for (const layout::Sharding sharding : sharding_options(run, replicas))
    for (const DataSharding& data_sharding : gather_options(run, sharding, replicas)) add(data_sharding);
  return all;
}

std::vector<Candidate> candidates_of(const config::Run& run, const LayoutChoice& c, int devices_per_node) {
  std::vector<Candidate> choices;
  const std::int64_t batch = run.training.global_batch_size;
  const int data = replicas_of(run, c) / c.context;
  const std::vector<DataSharding> data_sharding = all_data_shardings(run, c, devices_per_node);
  for (std::int64_t micro = 1; micro <= std::min(kMaxMicroBatch, batch / data); ++micro) {
    if (!run.training.decrease_batch_size_if_needed && batch % (micro * data) != 0) continue;
    for (const bool sequence_parallel : {true, false}) {
      if (sequence_parallel && c.tensor == 1) continue;
      for (const DataSharding& shared : data_sharding) choices.push_back({micro, sequence_parallel, shared});
    }
  }
  return choices;
}

std::vector<config::Recompute> recompute_options(const config::Model& model) {
  std::vector<std::string> modules;
  for (const std::string_view module : config::kCheapRecomputeModules)
    if (layout::has_module(model, module) &&
        (module != "layernorm" || !model.apply_residual_connection_post_layernorm))
      modules.emplace_back(module);
  std::vector<config::Recompute> options;
  if (!modules.empty()) options.push_back({.granularity = "selective", .modules = modules});
  if (layout::has_module(model, "mlp")) {
    modules.emplace_back("mlp");
    options.push_back({.granularity = "selective", .modules = modules});
  }
  options.push_back({.granularity = "full", .method = "uniform", .num_layers = 1});
  return options;
}

config::Run without_layout(config::Run run) {
  config::Parallel& p = run.parallel;
  p.pipeline_schedule = "auto";
  p.delay_wgrad_compute = false;
  p.overlap_moe_expert_parallel_comm = false;
  p.num_layers_per_virtual_pipeline_stage = 0;
  p.microbatch_group_size_per_virtual_pipeline_stage = 0;
  p.decoder_first_pipeline_num_layers = p.decoder_last_pipeline_num_layers = 0;
  p.pipeline_model_parallel_layout.clear();
  p.hierarchical_context_parallel_sizes.clear();
  return run;
}

config::Run run_of(const config::Run& base, const LayoutChoice& c, const Candidate& candidate) {
  config::Run run = base;
  config::Parallel& p = run.parallel;
  p.tensor_model_parallel_size = c.tensor;
  p.pipeline_model_parallel_size = c.pipeline;
  p.context_parallel_size = c.context;
  p.cp_comm_type = {c.cp_comm_type};
  p.expert_model_parallel_size = c.ep;
  p.expert_tensor_parallel_size = c.etp == c.tensor ? 0 : c.etp;
  p.pipeline_schedule = c.schedule;
  p.pipeline_model_parallel_layout = c.layout;
  p.num_virtual_stages_per_pipeline_rank = c.chunks > 1 && c.layout.empty() ? c.chunks : 0;
  p.account_for_embedding_in_pipeline_split = c.count_embedding;
  p.account_for_loss_in_pipeline_split = c.count_loss;
  p.sequence_parallel = candidate.sequence_parallel;
  apply_data_sharding(base, candidate.data_sharding, p);
  if (!config::is_from_command_line(base, kReduce)) p.overlap_grad_reduce = replicas_of(base, c) > 1;
  p.ddp_reduce_scatter_with_fp32_accumulation &= layout::sharding_of(p) >= layout::Sharding::kOptimizer;
  run.training.micro_batch_size = candidate.micro_batch;
  if (base.model.moe.num_experts > 0) run.model.moe.token_dispatcher_type = c.dispatcher;
  return run;
}

}  // namespace colonnade::cost
