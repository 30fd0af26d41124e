// Settings of the parallel layout. They never change the computed function.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace colonnade::config {

/// Values of --cp-comm-type: communication of keys, values or heads between context-parallel ranks.
inline constexpr const char* kCpCommTypes[] = {"p2p", "all_gather", "a2a", "a2a+p2p"};

/// Parallel sizes. tensor * context * pipeline must divide the world size; the quotient is the data-parallel
/// size.
struct Parallel {
  int world_size = 1;                               ///< from the launcher's environment, not a flag
  int tensor_model_parallel_size = 1;               ///< --tensor-model-parallel-size
  int pipeline_model_parallel_size = 1;             ///< --pipeline-model-parallel-size
  int context_parallel_size = 1;                    ///< --context-parallel-size
  int expert_model_parallel_size = 1;               ///< --expert-model-parallel-size
  int expert_tensor_parallel_size = 0;              ///< --expert-tensor-parallel-size; 0: as tensor
  std::vector<std::string> cp_comm_type = {"p2p"};  ///< --cp-comm-type: one for all layers, or one per layer
  std::vector<int> hierarchical_context_parallel_sizes;  ///< of a2a+p2p: a2a size, p2p size
  bool hybrid_context_parallel = false;  ///< --hybrid-context-parallel: CP size per sequence, by its length
  std::int64_t max_seqlen_per_dp_cp_rank = 0;  ///< --max-seqlen-per-dp-cp-rank, tokens; 0: unset
  bool sequence_parallel = false;     ///< --sequence-parallel; turned off if the tensor-parallel size is 1
  bool use_tp_pp_dp_mapping = false;  ///< --use-tp-pp-dp-mapping: order tp-cp-ep-pp-dp

  /// --pipeline-schedule gpipe|1f1b|interleaved|zb-h1|zb-v|dualpipe-v; auto: interleaved with virtual stages,
  /// else 1f1b
  std::string pipeline_schedule = "auto";
  bool delay_wgrad_compute = false;  ///< --delay-wgrad-compute: dgrad first, wgrad later
  /// --overlap-moe-expert-parallel-comm: all-to-all of experts beside the compute of another micro-batch
  bool overlap_moe_expert_parallel_comm = false;
  int num_virtual_stages_per_pipeline_rank = 0;   ///< --num-virtual-stages-per-pipeline-rank; 0: none
  int num_layers_per_virtual_pipeline_stage = 0;  ///< --num-layers-per-virtual-pipeline-stage; 0: unset
  int microbatch_group_size_per_virtual_pipeline_stage = 0;  ///< same name; 0: pipeline size
  int decoder_first_pipeline_num_layers = 0;  ///< --decoder-first-pipeline-num-layers; 0: unset
  int decoder_last_pipeline_num_layers = 0;   ///< --decoder-last-pipeline-num-layers; 0: unset
  bool account_for_embedding_in_pipeline_split = false;
  bool account_for_loss_in_pipeline_split = false;
  std::string pipeline_model_parallel_layout;  ///< --pipeline-model-parallel-layout; "": even split

  bool use_distributed_optimizer = false;  ///< --use-distributed-optimizer
  bool overlap_grad_reduce = false;        ///< --overlap-grad-reduce
  bool overlap_param_gather = false;       ///< --overlap-param-gather
  std::int64_t ddp_bucket_size = 0;        ///< --ddp-bucket-size, elements; 0: max(40e6, 1e6 * dp)
  int ddp_num_buckets = 0;  ///< --ddp-num-buckets: number of buckets instead of their size; 0: unset
  bool ddp_pad_buckets_for_high_nccl_busbw = false;  ///< same name: bucket sizes are multiples of 2^16

  bool use_megatron_fsdp = false;  ///< --use-megatron-fsdp: sharding by the strategy
  /// --data-parallel-sharding-strategy no_shard|optim|optim_grads|optim_grads_params
  std::string data_parallel_sharding_strategy = "optim_grads_params";
  /// --torch-fsdp2-no-reshard-after-forward keeps gathered weights from the forward pass to its backward pass
  bool torch_fsdp2_reshard_after_forward = true;
  /// --num-distributed-optimizer-instances: groups of data-parallel ranks, each with a full copy of the
  /// sharded state
  int num_distributed_optimizer_instances = 1;
  /// --outer-dp-sharding-strategy no_shard|optim: sharding over the instances too
  std::string outer_dp_sharding_strategy = "no_shard";
  bool grad_reduce_in_bf16 =
      false;  ///< --grad-reduce-in-bf16: bf16 gradient reduction; accumulation stays fp32
  /// --ddp-reduce-scatter-with-fp32-accumulation: bf16 shards are sent and accumulated in fp32 by the
  /// receiver
  bool ddp_reduce_scatter_with_fp32_accumulation = false;
  /// --deterministic-mode: gradients are reduced over the data-parallel ranks micro-batch by micro-batch, in
  /// the same order for all layouts.
  bool deterministic_mode = false;

  [[nodiscard]] int expert_tensor_size() const {
    return expert_tensor_parallel_size > 0 ? expert_tensor_parallel_size : tensor_model_parallel_size;
  }
  /// Whether forward and backward passes of different micro-batches run in pairs
  /// (schedule::Schedule::pairs_passes).
  [[nodiscard]] bool pairs_passes() const { return overlap_moe_expert_parallel_comm; }
  /// 0 if the world is smaller than tensor * pipeline * context.
  [[nodiscard]] int data_parallel_size() const {
    const std::int64_t block =
        std::int64_t{tensor_model_parallel_size} * pipeline_model_parallel_size * context_parallel_size;
    return block < 1 ? 0 : static_cast<int>(world_size / block);
  }

  friend bool operator==(const Parallel&, const Parallel&) = default;
};

}  // namespace colonnade::config
