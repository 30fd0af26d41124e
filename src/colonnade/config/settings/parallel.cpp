// Settings of how ranks share the work.
#include <sstream>

#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

constexpr auto kParallel = &Run::parallel;

/// Megatron's help says allgather, its code all_gather.
std::string set_exchanges(Run& run, const Words& given) {
  Words words = given;
  std::ranges::replace(words, "allgather", "all_gather");
  for (const std::string& word : words)
    if (std::ranges::find(kContextExchanges, word) == std::end(kContextExchanges))
      return fmt::format("must be of {}", fmt::join(kContextExchanges, ", "));
  if (words.empty()) return "must be one kind, or one for each layer";
  run.parallel.cp_comm_type = std::move(words);
  return "";
}

std::optional<Words> get_exchanges(const Run& run) { return run.parallel.cp_comm_type; }

/// Scripts quote the sizes as one word too.
std::string set_levels(Run& run, const Words& words) {
  std::vector<int> sizes;
  std::istringstream all(fmt::format("{}", fmt::join(words, " ")));
  for (std::string word; all >> word;)
    if (!read_number(word, sizes.emplace_back()) || sizes.back() < 1) return "must be integers of at least 1";
  run.parallel.hierarchical_context_parallel_sizes = std::move(sizes);
  return "";
}

std::optional<Words> get_levels(const Run& run) {
  Words words;
  for (const int size : run.parallel.hierarchical_context_parallel_sizes)
    words.push_back(std::to_string(size));
  return words;
}

void sizes(Table& t) {
  t.group("parallel sizes");
  t.add<kParallel, &Parallel::tensor_model_parallel_size>("--tensor-model-parallel-size",
                                                          "ranks that share each layer's weights")
      .unit("ranks")
      .range(1, 100'000)
      .common();
  t.add<kParallel, &Parallel::pipeline_model_parallel_size>("--pipeline-model-parallel-size",
                                                            "ranks that hold successive layers")
      .unit("ranks")
      .range(1, 100'000)
      .common();
  t.add<kParallel, &Parallel::context_parallel_size>("--context-parallel-size",
                                                     "ranks that share each sequence")
      .unit("ranks")
      .range(1, 100'000);
  t.add<kParallel, &Parallel::cp_comm_type>(
       "--cp-comm-type",
       "how context ranks exchange keys, values or heads: p2p, all_gather, a2a or a2a+p2p; one for all layers "
       "or one for each")
      .how(Kind::kList, set_exchanges, get_exchanges);
  t.special("--hierarchical-context-parallel-sizes",
            "of a2a+p2p: how many neighbours exchange heads, and how many such groups make a ring")
      .how(Kind::kList, set_levels, get_levels);
  t.add<kParallel, &Parallel::hybrid_context_parallel>(
      "--hybrid-context-parallel",
      "each sequence of a batch, from one end of document to the next, on as many data and context ranks as its "
      "length needs; ranks get equal shares of the attention");
  t.add<kParallel, &Parallel::max_seqlen_per_dp_cp_rank>(
       "--max-seqlen-per-dp-cp-rank",
       "most tokens of a sequence on one rank with --hybrid-context-parallel; 0: --seq-length / "
       "--context-parallel-size")
      .unit("tokens")
      .range(0, 1'000'000'000);
  t.add<kParallel, &Parallel::expert_model_parallel_size>("--expert-model-parallel-size",
                                                          "ranks that share the experts of a layer")
      .unit("ranks")
      .range(1, 100'000);
  t.add<kParallel, &Parallel::expert_tensor_parallel_size>(
       "--expert-tensor-parallel-size", "tensor size of experts; 0: as --tensor-model-parallel-size")
      .unit("ranks")
      .range(0, 100'000);
  t.add<kParallel, &Parallel::sequence_parallel>(
       "--sequence-parallel",
       "tensor ranks share the sequence between their regions; off by itself when the tensor size is 1")
      .common();
  t.add<kParallel, &Parallel::use_tp_pp_dp_mapping>("--use-tp-pp-dp-mapping",
                                                    "rank order tp-cp-ep-pp-dp, not tp-cp-ep-dp-pp");
}

void pipeline(Table& t) {
  t.group("pipeline");
  t.add<kParallel, &Parallel::pipeline_schedule>(
       "--pipeline-schedule",
       "order of forward and backward steps; auto: interleaved with virtual stages, else 1f1b; zb-v and "
       "dualpipe-v have two virtual stages per rank, down the ranks and up again")
      .choices({"auto", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v", "dualpipe-v"})
      .own();
  t.add<kParallel, &Parallel::delay_wgrad_compute>(
      "--delay-wgrad-compute",
      "gradients of inputs first, which the rank before gets at once, then those of weights");
  t.add<kParallel, &Parallel::num_virtual_stages_per_pipeline_rank>(
       "--num-virtual-stages-per-pipeline-rank", "virtual stages of each pipeline rank; 0: one")
      .alias("--virtual-pipeline-model-parallel-size")
      .range(0, 100)
      .common();
  t.add<kParallel, &Parallel::num_layers_per_virtual_pipeline_stage>(
       "--num-layers-per-virtual-pipeline-stage", "says the same by layers of a virtual stage; 0: unset")
      .unit("layers")
      .range(0, 1'000'000);
  t.add<kParallel, &Parallel::microbatch_group_size_per_virtual_pipeline_stage>(
       "--microbatch-group-size-per-virtual-pipeline-stage",
       "micro-batches that a virtual stage takes in a row; 0: the pipeline size")
      .alias("--microbatch-group-size-per-vp-stage")
      .at_least(0);
  t.add<kParallel, &Parallel::decoder_first_pipeline_num_layers>(
       "--decoder-first-pipeline-num-layers", "layers of the first pipeline rank; 0 (in files): even split")
      .unit("layers")
      .range(0, 1'000'000);
  t.add<kParallel, &Parallel::decoder_last_pipeline_num_layers>(
       "--decoder-last-pipeline-num-layers", "layers of the last pipeline rank; 0 (in files): even split")
      .unit("layers")
      .range(0, 1'000'000);
  t.add<kParallel, &Parallel::account_for_embedding_in_pipeline_split>(
      "--account-for-embedding-in-pipeline-split", "the embedding counts as a layer in the split");
  t.add<kParallel, &Parallel::account_for_loss_in_pipeline_split>(
      "--account-for-loss-in-pipeline-split", "the output layer and loss count as a layer in the split");
  t.add<kParallel, &Parallel::pipeline_model_parallel_layout>(
      "--pipeline-model-parallel-layout",
      "explicit stages, e.g. \"Et*3|(tt|)*29,m|L\": E embedding, e layer of an encoder, t layer, m further token, L loss, "
      "| next stage, *n repeats");
}

void data(Table& t) {
  t.group("data parallelism");
  t.add<kParallel, &Parallel::use_distributed_optimizer>("--use-distributed-optimizer",
                                                         "optimizer states are sharded over the data ranks")
      .common();
  t.add<kParallel, &Parallel::use_megatron_fsdp>(
      "--use-megatron-fsdp", "data ranks hold a part each of what --data-parallel-sharding-strategy says");
  t.add<kParallel, &Parallel::data_parallel_sharding_strategy>(
       "--data-parallel-sharding-strategy",
       "no_shard: nothing; optim: optimizer states, as --use-distributed-optimizer; optim_grads: gradients too; "
       "optim_grads_params: weights too, which a block gathers when it computes")
      .choices({"no_shard", "optim", "optim_grads", "optim_grads_params"});
  t.add<kParallel, &Parallel::torch_fsdp2_reshard_after_forward>(
       "--torch-fsdp2-reshard-after-forward",
       "with optim_grads_params: weights that a block gathered are let go until its backward pass gathers them "
       "again; off: they stay, for half of the messages")
      .off("--torch-fsdp2-no-reshard-after-forward");
  t.add<kParallel, &Parallel::num_distributed_optimizer_instances>(
       "--num-distributed-optimizer-instances",
       "equal groups of neighbouring data ranks, each of which shares what is sharded by itself; gradients are "
       "summed within them, then once a step between them")
      .range(1, 100'000);
  t.add<kParallel, &Parallel::outer_dp_sharding_strategy>(
       "--outer-dp-sharding-strategy",
       "between those groups no_shard: each holds the same; optim: they share optimizer states and updates too")
      .choices({"no_shard", "optim"});
  t.add<kParallel, &Parallel::grad_reduce_in_bf16>(
      "--grad-reduce-in-bf16",
      "gradients travel over the data ranks in bf16; sums over micro-batches stay in fp32, where Megatron's are "
      "bf16 too");
  t.add<kParallel, &Parallel::ddp_reduce_scatter_with_fp32_accumulation>(
      "--ddp-reduce-scatter-with-fp32-accumulation",
      "gradients in bf16 that are scattered are sent as they are to who needs their sum, who adds them up in fp32");
  t.add<kParallel, &Parallel::deterministic_mode>(
      "--deterministic-mode",
      "equal bits whatever the pipeline, the sharding and (as powers of two) the number of data ranks; every "
      "micro-batch's gradients are summed over the data ranks by themselves, which costs messages and memory");
  t.add<kParallel, &Parallel::overlap_grad_reduce>("--overlap-grad-reduce",
                                                   "gradients are reduced while backward runs");
  t.add<kParallel, &Parallel::overlap_param_gather>("--overlap-param-gather",
                                                    "weights are gathered while forward runs");
  t.add<kParallel, &Parallel::ddp_bucket_size>(
       "--ddp-bucket-size",
       "gradient elements of a bucket; 0: the larger of 40,000,000 and 1,000,000 x data ranks")
      .alias("--dp-comm-overlap-bucket-size")
      .unit("elements")
      .at_least(0);
  t.add<kParallel, &Parallel::ddp_num_buckets>(
       "--ddp-num-buckets",
       "says the bucket size by their number: a rank's parameters divided by it; what is reduced or held apart lies "
       "in buckets of its own; 0: unset")
      .at_least(0);
  t.add<kParallel, &Parallel::ddp_pad_buckets_for_high_nccl_busbw>(
      "--ddp-pad-buckets-for-high-nccl-busbw",
      "buckets are filled up to multiples of 65,536 elements, which NCCL moves faster over many ranks");
  t.add<&Run::training, &Training::distributed_backend>(
       "--distributed-backend",
       "nccl: a GPU for each rank, gloo where tensors live on the CPU; gloo: through host memory, ranks may share "
       "GPUs; unset: nccl")
      .choices({"nccl", "gloo"})
      .megatron_default("nccl");
  t.add<&Run::training, &Training::distributed_timeout_minutes>("--distributed-timeout-minutes",
                                                                "time-out of every group")
      .unit("minutes")
      .at_least(0);
}

}  // namespace

void add_parallel(Table& t) {
  sizes(t);
  pipeline(t);
  data(t);
}

}  // namespace colonnade::config
