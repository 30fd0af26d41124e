// Settings of the parallel layout.
#include <sstream>

#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

constexpr auto kParallel = &Run::parallel;

/// Megatron's help says allgather, its code all_gather.
std::string set_cp_comm_type(Run& run, const Words& given) {
  Words words = given;
  std::ranges::replace(words, "allgather", "all_gather");
  for (const std::string& word : words)
    if (std::ranges::find(kCpCommTypes, word) == std::end(kCpCommTypes))
      return fmt::format("must be among {}", fmt::join(kCpCommTypes, ", "));
  if (words.empty()) return "must be one type, or one per layer";
  run.parallel.cp_comm_type = std::move(words);
  return "";
}

std::optional<Words> get_cp_comm_type(const Run& run) { return run.parallel.cp_comm_type; }

/// Scripts may quote the sizes as one word.
std::string set_hierarchical_sizes(Run& run, const Words& words) {
  std::vector<int> sizes;
  std::istringstream all(fmt::format("{}", fmt::join(words, " ")));
  for (std::string word; all >> word;)
    if (!read_number(word, sizes.emplace_back()) || sizes.back() < 1) return "must be integers of at least 1";
  run.parallel.hierarchical_context_parallel_sizes = std::move(sizes);
  return "";
}

std::optional<Words> get_hierarchical_sizes(const Run& run) {
  Words words;
  for (const int size : run.parallel.hierarchical_context_parallel_sizes)
    words.push_back(std::to_string(size));
  return words;
}

void sizes(Table& t) {
  t.group("parallel sizes");
  t.add<kParallel, &Parallel::tensor_model_parallel_size>(
       "--tensor-model-parallel-size", "tensor-parallel size: ranks that shard each layer's weights")
      .unit("ranks")
      .range(1, 100'000)
      .common();
  t.add<kParallel, &Parallel::pipeline_model_parallel_size>(
       "--pipeline-model-parallel-size", "pipeline-parallel size: ranks that hold successive layers")
      .unit("ranks")
      .range(1, 100'000)
      .common();
  t.add<kParallel, &Parallel::context_parallel_size>("--context-parallel-size",
                                                     "context-parallel size: ranks that shard each sequence")
      .unit("ranks")
      .range(1, 100'000);
  t.add<kParallel, &Parallel::cp_comm_type>(
       "--cp-comm-type",
       "context-parallel communication: p2p, all_gather, a2a or a2a+p2p; one for all layers or "
       "one per layer")
      .accessors(Kind::kList, set_cp_comm_type, get_cp_comm_type);
  t.special("--hierarchical-context-parallel-sizes",
            "for a2a+p2p: number of adjacent ranks in an all-to-all group, then number of such "
            "groups in a ring")
      .accessors(Kind::kList, set_hierarchical_sizes, get_hierarchical_sizes);
  t.add<kParallel, &Parallel::hybrid_context_parallel>(
      "--hybrid-context-parallel",
      "shard each document over as many data- and context-parallel ranks as its length needs, "
      "balancing attention work over ranks");
  t.add<kParallel, &Parallel::max_seqlen_per_dp_cp_rank>(
       "--max-seqlen-per-dp-cp-rank",
       "maximum tokens of a sequence per rank with --hybrid-context-parallel; 0: --seq-length / "
       "--context-parallel-size")
      .unit("tokens")
      .range(0, 1'000'000'000);
  add_parallel_moe(t);
  t.add<kParallel, &Parallel::sequence_parallel>(
       "--sequence-parallel",
       "shard activations of norms and dropout along the sequence over tensor-parallel ranks; "
       "turned off if the tensor-parallel size is 1")
      .common();
  t.add<kParallel, &Parallel::use_tp_pp_dp_mapping>("--use-tp-pp-dp-mapping",
                                                    "rank order tp-cp-ep-pp-dp instead of tp-cp-ep-dp-pp");
}

void pipeline(Table& t) {
  t.group("pipeline");
  t.add<kParallel, &Parallel::pipeline_schedule>(
       "--pipeline-schedule",
       "pipeline schedule; auto: interleaved with virtual stages, else 1f1b; zb-v and dualpipe-v place two "
       "virtual stages per rank in a V shape")
      .choices({"auto", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v"})
      .colonnade_only();
  t.add<kParallel, &Parallel::delay_wgrad_compute>(
      "--delay-wgrad-compute",
      "compute and send input gradients (dgrad) first, weight gradients (wgrad) later");
  t.add<kParallel, &Parallel::num_virtual_stages_per_pipeline_rank>(
       "--num-virtual-stages-per-pipeline-rank", "virtual stages (model chunks) per pipeline rank; 0: one")
      .alias("--virtual-pipeline-model-parallel-size")
      .range(0, 100)
      .common();
  t.add<kParallel, &Parallel::num_layers_per_virtual_pipeline_stage>(
       "--num-layers-per-virtual-pipeline-stage",
       "layers per virtual stage, as an alternative to their number; 0: unset")
      .unit("layers")
      .range(0, 1'000'000);
  t.add<kParallel, &Parallel::microbatch_group_size_per_virtual_pipeline_stage>(
       "--microbatch-group-size-per-virtual-pipeline-stage",
       "contiguous micro-batches per virtual stage in the interleaved schedule; 0: "
       "pipeline-parallel size")
      .alias("--microbatch-group-size-per-vp-stage")
      .at_least(0);
  t.add<kParallel, &Parallel::decoder_first_pipeline_num_layers>(
       "--decoder-first-pipeline-num-layers", "layers on the first pipeline rank; 0 (in YAML): even split")
      .unit("layers")
      .range(0, 1'000'000);
  t.add<kParallel, &Parallel::decoder_last_pipeline_num_layers>(
       "--decoder-last-pipeline-num-layers", "layers on the last pipeline rank; 0 (in YAML): even split")
      .unit("layers")
      .range(0, 1'000'000);
  t.add<kParallel, &Parallel::account_for_embedding_in_pipeline_split>(
      "--account-for-embedding-in-pipeline-split", "count the embedding as a layer in the pipeline split");
  t.add<kParallel, &Parallel::account_for_loss_in_pipeline_split>(
      "--account-for-loss-in-pipeline-split", "count output layer and loss as a layer in the pipeline split");
  t.add<kParallel, &Parallel::pipeline_model_parallel_layout>(
      "--pipeline-model-parallel-layout",
      "custom stages, e.g. \"Et*3|(tt|)*29,m|L\": E embedding, e encoder layer, t layer, m MTP "
      "layer, L loss, | next stage, *n repeats");
}

void data_parallel_sharding(Table& t) {
  t.add<kParallel, &Parallel::use_distributed_optimizer>(
       "--use-distributed-optimizer", "shard optimizer states over data-parallel ranks (ZeRO-1)")
      .common();
  t.add<kParallel, &Parallel::use_megatron_fsdp>(
      "--use-megatron-fsdp", "fully sharded data parallelism as set by --data-parallel-sharding-strategy");
  t.add<kParallel, &Parallel::data_parallel_sharding_strategy>(
       "--data-parallel-sharding-strategy",
       "no_shard; optim: optimizer states, as --use-distributed-optimizer; optim_grads: also "
       "gradients; optim_grads_params: also weights, gathered per block")
      .choices({"no_shard", "optim", "optim_grads", "optim_grads_params"});
  t.add<kParallel, &Parallel::torch_fsdp2_reshard_after_forward>(
       "--torch-fsdp2-reshard-after-forward",
       "with optim_grads_params: free gathered weights after forward and gather them again for "
       "backward; off: keep them, halving the all-gathers")
      .off_alias("--torch-fsdp2-no-reshard-after-forward");
  t.add<kParallel, &Parallel::num_distributed_optimizer_instances>(
       "--num-distributed-optimizer-instances",
       "distributed-optimizer instances: groups of adjacent data-parallel ranks that shard "
       "states; gradients are reduced within each, then once per step across")
      .range(1, 100'000);
  t.add<kParallel, &Parallel::outer_dp_sharding_strategy>(
       "--outer-dp-sharding-strategy",
       "sharding across optimizer instances: no_shard: replicated; optim: optimizer states and "
       "updates are also sharded")
      .choices({"no_shard", "optim"});
}

void gradient_reduction(Table& t) {
  t.add<kParallel, &Parallel::grad_reduce_in_bf16>(
      "--grad-reduce-in-bf16",
      "reduce gradients over data-parallel ranks in bf16; unlike in Megatron, accumulation "
      "over micro-batches stays fp32");
  t.add<kParallel, &Parallel::ddp_reduce_scatter_with_fp32_accumulation>(
      "--ddp-reduce-scatter-with-fp32-accumulation",
      "send bf16 gradient shards unreduced to the rank that owns them, which accumulates them "
      "in fp32");
  t.add<kParallel, &Parallel::deterministic_mode>(
      "--deterministic-mode",
      "bitwise identical for any pipeline, sharding and power-of-two data-parallel size, by "
      "reducing gradients per micro-batch; costs communication and memory");
  t.add<kParallel, &Parallel::overlap_grad_reduce>("--overlap-grad-reduce",
                                                   "overlap gradient reduction with the backward pass");
  t.add<kParallel, &Parallel::overlap_param_gather>("--overlap-param-gather",
                                                    "overlap the parameter all-gather with the forward pass");
  t.add<kParallel, &Parallel::ddp_bucket_size>(
       "--ddp-bucket-size",
       "gradient bucket size in elements; 0: max(40,000,000, 1,000,000 x data-parallel size)")
      .alias("--dp-comm-overlap-bucket-size")
      .unit("elements")
      .at_least(0);
  t.add<kParallel, &Parallel::ddp_num_buckets>(
       "--ddp-num-buckets",
       "number of gradient buckets instead of their size; parameters with their own reduction "
       "or sharding use separate buckets; 0: unset")
      .at_least(0);
  t.add<kParallel, &Parallel::ddp_pad_buckets_for_high_nccl_busbw>(
      "--ddp-pad-buckets-for-high-nccl-busbw",
      "pad gradient buckets to multiples of 65,536 elements for higher NCCL bus bandwidth on "
      "many ranks");
}

void process_groups(Table& t) {
  t.add<&Run::training, &Training::distributed_backend>(
       "--distributed-backend",
       "nccl: one GPU per rank; gloo: through host memory, ranks may share GPUs; on the CPU "
       "always gloo; unset: nccl")
      .choices({"nccl", "gloo"})
      .megatron_default("nccl");
  t.add<&Run::training, &Training::distributed_timeout_minutes>("--distributed-timeout-minutes",
                                                                "time-out of every process group")
      .unit("minutes")
      .at_least(0);
}

}  // namespace

void add_parallel(Table& t) {
  sizes(t);
  pipeline(t);
  t.group("data parallelism");
  data_parallel_sharding(t);
  gradient_reduction(t);
  process_groups(t);
}

}  // namespace colonnade::config
