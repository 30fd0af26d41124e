// Enumerates layouts.
#include "colonnade/cost/search_space.h"

#include <algorithm>
#include <optional>

#include "colonnade/config/parse.h"
#include "colonnade/layout/layout_string.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/schedule/kinds.h"

namespace colonnade::cost {
namespace {

constexpr int kMostTensorRanks = 64, kMostContextRanks = 16;
constexpr int kMostChunks = 16;
constexpr std::int64_t kLargestMicroBatch = 16;
/// Keys of what ranks share.
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

/// Ranks that hold the same dense parameters.
int replicas_of(const config::Run& run, const Choices& c) {
  return run.parallel.world_size / (c.tensor * c.pipeline);
}

void add_exchanges(const config::Run& run, Choices c, std::vector<Choices>& out) {
  if (c.context == 1 && !run.parallel.hybrid_context_parallel) return out.push_back(c);
  for (const char* exchange : {"p2p", "a2a"}) {
    c.exchange = exchange;
    out.push_back(c);
  }
}

/// Ranks that share sequences by their lengths are the same for each context size, which says how many tokens
/// a rank holds where nothing else does.
void add_contexts(const config::Run& run, Choices c, std::vector<Choices>& out) {
  const config::Parallel& p = run.parallel;
  if (p.hybrid_context_parallel && p.max_seqlen_per_dp_cp_rank > 0) return add_exchanges(run, c, out);
  for (const int context : divisors(replicas_of(run, c))) {
    if (context > kMostContextRanks) break;
    c.context = context;
    add_exchanges(run, c, out);
  }
}

/// Those of a mixture; experts of tensor ranks are whole or cut.
void add_experts(const config::Run& run, Choices c, std::vector<Choices>& out) {
  c.expert_tensor = c.tensor;  // as without a word on it
  if (run.model.moe.num_experts == 0) return add_contexts(run, c, out);
  const int ranks = run.parallel.world_size / c.pipeline;
  const std::vector<int> cuts = c.tensor == 1 ? std::vector{1} : std::vector{1, c.tensor};
  for (const int expert : divisors(run.model.moe.num_experts)) {
    for (const int cut : cuts) {
      if (ranks % (expert * cut) != 0) continue;
      c.expert = expert;
      c.expert_tensor = cut;
      for (const auto dispatcher :
           {config::TokenDispatcher::kAllToAll, config::TokenDispatcher::kAllGather}) {
        c.dispatcher = dispatcher;
        add_contexts(run, c, out);
        if (expert * cut == 1) break;  // nothing is sent
      }
    }
  }
}

/// The schedules of so many virtual stages per rank.
void add_schedules(const config::Run& run, Choices c, std::vector<Choices>& out) {
  add_experts(run, c, out);
  for (const schedule::ScheduleKind& kind : schedule::schedule_kinds()) {
    if (!kind.splits_backward || !schedule::runs(kind, c.chunks)) continue;
    c.schedule = kind.name;
    add_experts(run, c, out);
  }
}

/// Layers as evenly as they go, where no split of this pipeline size is even: with one virtual stage, and
/// with two for the schedules that need them.
void add_layouts(const config::Run& run, Choices c, std::vector<Choices>& out) {
  const std::int64_t layers = run.model.all_layers(), over = layers % c.pipeline;
  if (over == 0 || over + 2 >= c.pipeline) return;
  c.embedding_counts = c.loss_counts = false;
  for (c.chunks = 1; c.chunks <= 2 && c.chunks * c.pipeline <= layers; ++c.chunks) {
    c.layout = layout::even_layout(run.model, std::int64_t{c.pipeline} * c.chunks, /*ends_count=*/true);
    add_schedules(run, c, out);
  }
}

/// Those of one tensor and pipeline size.
void add_stages(const config::Run& run, Choices c, std::vector<Choices>& out) {
  if (c.pipeline == 1) return add_experts(run, c, out);
  for (const bool embedding : {false, true}) {
    for (const bool loss : {false, true}) {
      c.embedding_counts = embedding;
      c.loss_counts = loss;
      const std::int64_t slots = run.model.all_layers() + (embedding ? 1 : 0) + (loss ? 1 : 0);
      const auto most = std::clamp<std::int64_t>(slots / c.pipeline, 1, kMostChunks);
      for (c.chunks = 1; c.chunks <= most; ++c.chunks) add_schedules(run, c, out);
    }
  }
  add_layouts(run, c, out);
}

/// What may be shared. Of one replica nothing is, but for what is asked for; --deterministic-mode shares
/// gradients where optimizer states are, and where nothing is.
std::vector<layout::Sharding> shardings(const config::Run& run, int replicas) {
  const config::Parallel& p = run.parallel;
  const bool fsdp = config::typed(run, kFsdp) && p.use_megatron_fsdp;
  const bool no_fsdp = config::typed(run, kFsdp) && !p.use_megatron_fsdp;
  if (config::typed(run, kStrategy)) {
    config::Parallel asked = p;
    asked.use_megatron_fsdp = !no_fsdp;
    return {layout::sharding_of(asked)};
  }
  if (replicas == 1) return {layout::Sharding::kNone};
  const bool with = config::typed(run, kOptimizer) && p.use_distributed_optimizer;
  const bool without = config::typed(run, kOptimizer) && !p.use_distributed_optimizer;
  std::vector<layout::Sharding> all;
  if (!with && (without || !p.deterministic_mode)) all.push_back(layout::Sharding::kNone);
  if (!without || fsdp) all.push_back(layout::Sharding::kOptimizer);
  if (!no_fsdp && !p.deterministic_mode) all.push_back(layout::Sharding::kGradients);
  if (!no_fsdp) all.push_back(layout::Sharding::kParameters);
  return all;
}

/// Of the replicas of a parameter those in the first node, as groups of them; 1 where these are one or all,
/// or experts cannot be grouped so.
int nodes_of_replicas(const config::Run& run, const Choices& c, int devices_per_node) {
  const int replicas = replicas_of(run, c), block = c.tensor * c.context;
  const int apart = run.parallel.use_tp_pp_dp_mapping ? block * c.pipeline : block;
  int near = 0;
  while (near < replicas && c.tensor * (near % c.context) + apart * (near / c.context) < devices_per_node)
    ++near;
  if (near < 2 || replicas % near != 0) return 1;
  const int copies = run.parallel.world_size / (c.expert_tensor * c.expert * c.pipeline);
  const int nodes = replicas / near;
  return run.model.moe.num_experts > 0 && copies % nodes != 0 ? 1 : nodes;
}

/// In the plainest words, but for those that are typed.
void set_shares(const config::Run& base, const Shares& shares, config::Parallel& p) {
  const bool strategy = config::typed(base, kStrategy);
  if (!config::typed(base, kFsdp))
    p.use_megatron_fsdp = strategy || shares.sharding >= layout::Sharding::kGradients;
  const bool either =
      p.use_megatron_fsdp && shares.sharding != layout::Sharding::kNone;  // it says no more then
  if (!either && (!config::typed(base, kOptimizer) || shares.sharding == layout::Sharding::kNone))
    p.use_distributed_optimizer = shares.sharding == layout::Sharding::kOptimizer;
  constexpr const char* kNames[] = {"no_shard", "optim", "optim_grads", "optim_grads_params"};
  if (!strategy)
    p.data_parallel_sharding_strategy = p.use_megatron_fsdp
                                            ? kNames[static_cast<int>(shares.sharding)]
                                            : config::Parallel().data_parallel_sharding_strategy;
  p.overlap_param_gather = shares.ahead;
  p.torch_fsdp2_reshard_after_forward = !shares.stays;
  p.num_distributed_optimizer_instances = shares.instances;
  p.outer_dp_sharding_strategy = shares.outer ? "optim" : "no_shard";
}

}  // namespace

std::vector<Choices> all_choices(const config::Run& run) {
  std::vector<Choices> choices;
  const int world = run.parallel.world_size;
  for (const int tensor : divisors(world)) {
    if (tensor > kMostTensorRanks) break;
    for (const int pipeline : divisors(world / tensor)) {
      if (pipeline > run.model.all_layers() + 2) break;
      Choices c;
      c.tensor = tensor;
      c.pipeline = pipeline;
      add_stages(run, c, choices);
    }
  }
  return choices;
}

namespace {

/// Whether parameters are gathered beside the passes, and stay; of these shares on one level.
std::vector<Shares> ways_to_gather(const config::Run& run, layout::Sharding sharding, int replicas) {
  const config::Parallel& p = run.parallel;
  const bool never = (config::typed(run, kGather) && !p.overlap_param_gather) ||
                     (config::typed(run, kReduce) && !p.overlap_grad_reduce);  // it goes with the other one
  const bool always = config::typed(run, kGather) && p.overlap_param_gather;
  const bool ahead = sharding != layout::Sharding::kNone && replicas > 1 && !never;
  if (sharding < layout::Sharding::kParameters || replicas == 1)
    return {{.sharding = sharding, .ahead = ahead}};
  const bool typed = config::typed(run, kReshard), again = p.torch_fsdp2_reshard_after_forward;
  std::vector<Shares> ways;
  if (!typed || !again) ways.push_back({.sharding = sharding, .ahead = ahead, .stays = true});
  if (!typed || again) ways.push_back({.sharding = sharding, .ahead = ahead});
  if ((!typed || again) && ahead && !always) ways.push_back({.sharding = sharding, .ahead = false});
  return ways;
}

/// Whether to share the update between instances or not is a choice, or is what was asked for. `several`:
/// numbers of instances to choose from.
bool is_tried(const Shares& s, std::optional<bool> asked, bool several) {
  const bool idle = s.outer && (s.instances == 1 || s.sharding == layout::Sharding::kNone);
  if (!asked) return !idle;
  return s.outer == *asked && !(idle && several && s.sharding != layout::Sharding::kNone);
}

}  // namespace

std::vector<Shares> all_shares(const config::Run& run, const Choices& c, int devices_per_node) {
  const config::Parallel& p = run.parallel;
  const int replicas = replicas_of(run, c);
  std::vector<int> instances{1};
  if (config::typed(run, kInstances))
    instances = {p.num_distributed_optimizer_instances};
  else if (const int nodes = nodes_of_replicas(run, c, devices_per_node); nodes > 1 && !p.deterministic_mode)
    instances.push_back(nodes);
  const auto given_outer =
      config::typed(run, kOuter) ? std::optional(p.outer_dp_sharding_strategy == "optim") : std::nullopt;
  std::vector<Shares> all;
  const auto add = [&](Shares shares) {
    for (const int number : instances) {
      for (const bool outer : {false, true}) {
        shares.instances = number;
        shares.outer = outer;
        if (is_tried(shares, given_outer, instances.size() > 1)) all.push_back(shares);
      }
      if (shares.sharding == layout::Sharding::kNone) break;
    }
  };
  for (const layout::Sharding sharding : shardings(run, replicas))
    for (const Shares& shares : ways_to_gather(run, sharding, replicas)) add(shares);
  return all;
}

std::vector<Choice> choices_of(const config::Run& run, const Choices& c, int devices_per_node) {
  std::vector<Choice> choices;
  const std::int64_t batch = run.training.global_batch_size;
  const int data = replicas_of(run, c) / c.context;
  const std::vector<Shares> shares = all_shares(run, c, devices_per_node);
  for (std::int64_t micro = 1; micro <= std::min(kLargestMicroBatch, batch / data); ++micro) {
    if (batch % (micro * data) != 0) continue;
    for (const bool by_sequence : {true, false}) {
      if (by_sequence && c.tensor == 1) continue;
      for (const Shares& shared : shares) choices.push_back({micro, by_sequence, shared});
    }
  }
  return choices;
}

std::vector<config::Recompute> ways_to_make_again(const config::Model& model) {
  const std::vector<bool> experts = layout::layers_with_experts(model);
  std::vector<std::string> parts;
  if (!model.apply_residual_connection_post_layernorm) parts.emplace_back("layernorm");
  if (std::ranges::count(experts, true) > 0) parts.emplace_back("moe_act");
  if (model.latent.enabled) parts.emplace_back("mla_up_proj");
  std::vector<config::Recompute> ways;
  if (!parts.empty()) ways.push_back({.granularity = "selective", .modules = parts});
  if (std::ranges::count(experts, false) > 0) {
    parts.emplace_back("mlp");
    ways.push_back({.granularity = "selective", .modules = parts});
  }
  ways.push_back({.granularity = "full", .method = "uniform", .num_layers = 1});
  return ways;
}

config::Run without_layout(config::Run run) {
  config::Parallel& p = run.parallel;
  p.pipeline_schedule = "auto";
  p.delay_wgrad_compute = false;
  p.num_layers_per_virtual_pipeline_stage = 0;
  p.microbatch_group_size_per_virtual_pipeline_stage = 0;
  p.decoder_first_pipeline_num_layers = p.decoder_last_pipeline_num_layers = 0;
  p.pipeline_model_parallel_layout.clear();
  p.hierarchical_context_parallel_sizes.clear();
  return run;
}

config::Run run_of(const config::Run& base, const Choices& c, const Choice& choice) {
  config::Run run = base;
  config::Parallel& p = run.parallel;
  p.tensor_model_parallel_size = c.tensor;
  p.pipeline_model_parallel_size = c.pipeline;
  p.context_parallel_size = c.context;
  p.cp_comm_type = {c.exchange};
  p.expert_model_parallel_size = c.expert;
  p.expert_tensor_parallel_size = c.expert_tensor == c.tensor ? 0 : c.expert_tensor;
  p.pipeline_schedule = c.schedule;
  p.pipeline_model_parallel_layout = c.layout;
  p.num_virtual_stages_per_pipeline_rank = c.chunks > 1 && c.layout.empty() ? c.chunks : 0;
  p.account_for_embedding_in_pipeline_split = c.embedding_counts;
  p.account_for_loss_in_pipeline_split = c.loss_counts;
  p.sequence_parallel = choice.by_sequence;
  set_shares(base, choice.shares, p);
  if (!config::typed(base, kReduce)) p.overlap_grad_reduce = replicas_of(base, c) > 1;
  p.ddp_reduce_scatter_with_fp32_accumulation &= layout::sharding_of(p) >= layout::Sharding::kOptimizer;
  run.training.micro_batch_size = choice.micro_batch;
  if (base.model.moe.num_experts > 0) run.model.moe.token_dispatcher_type = c.dispatcher;
  return run;
}

}  // namespace colonnade::cost
