// Flags of Megatron's about ranks and communication that this version refuses, each with the reason and a way
// out.
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

constexpr Flag kWeightShards[] = {
    {"--tensor-parallel-num-weight-shards", "integer"},
    {"--gtp-remat-opt-in-modules", "list"},
    {"--gtp-remat-reduce-scatter-with-fp32-accumulation"},
    {"--gtp-remat-nccl-ub"},
};

constexpr Flag kFsdp[] = {
    {"--no-strict-fsdp-dtensor-load --disable-strict-fsdp-dtensor-load", "off", "",
     "strict_fsdp_dtensor_load"},
    {"--use-torch-fsdp2"},
    {"--megatron-fsdp-version", "integer", "1"},
    {"--use-nccl-ub", "on", "", "nccl_ub"},
    {"--disable-symmetric-registration"},
    {"--fsdp-manual-registration"},
    {"--create-all-gather-group"},
    {"--fsdp-double-buffer"},
    {"--suggested-communication-unit-size", "integer"},
    {"--enable-full-sharding-in-hsdp"},
    {"--megatron-fsdp-main-params-dtype", "text", "fp32"},
    {"--megatron-fsdp-main-grads-dtype", "text", "auto"},
    {"--megatron-fsdp-grad-comm-dtype", "text", "auto"},
    {"--megatron-fsdp-enable-fine-grained-param-gather"},
    {"--megatron-fsdp-max-pool-double-buffer"},
    {"--fsdp-db-use-persist-buf-on-alloc-fail"},
};

constexpr Flag kOverlap[] = {
    {"--no-tp-comm-bulk-wgrad --disable-tp-comm-bulk-wgrad", "off", "", "tp_comm_bulk_wgrad"},
    {"--no-tp-comm-bulk-dgrad --disable-tp-comm-bulk-dgrad", "off", "", "tp_comm_bulk_dgrad"},
    {"--no-tp-comm-overlap-ag --disable-tp-comm-overlap-ag", "off", "", "tp_comm_overlap_ag"},
    {"--no-tp-comm-overlap-rs --disable-tp-comm-overlap-rs", "off", "", "tp_comm_overlap_rs"},
    {"--tp-comm-overlap-rs-dgrad"},
    {"--no-tp-comm-split-ag --disable-tp-comm-split-ag", "off", "", "tp_comm_split_ag"},
    {"--no-tp-comm-split-rs --disable-tp-comm-split-rs", "off", "", "tp_comm_split_rs"},
    {"--tp-comm-bootstrap-backend", "text", "nccl"},
    {"--use-ring-exchange-p2p"},
    {"--defer-embedding-wgrad-compute"},
    {"--wgrad-deferral-limit", "integer", "0"},
    {"--overlap-p2p-communication-warmup-flush", "on", "", "overlap_p2p_comm_warmup_flush"},
    {"--no-clone-scatter-output-in-embedding --disable-clone-scatter-output-in-embedding", "off", "",
     "clone_scatter_output_in_embedding"},
    {"--symmetric-ar-type", "text"},
    {"--inference-fuse-tp-communication"},
    {"--tp-comm-overlap-cfg", "text"},
};

constexpr Flag kGroups[] = {
    {"--pipeline-model-parallel-comm-backend", "text"},
    {"--lazy-mpu-init"},
    {"--nccl-communicator-config-path", "text"},
    {"--use-sharp"},
    {"--sharp-enabled-group", "text"},
    {"--high-priority-stream-groups", "list"},
    {"--distributed-timeout-seconds-after-init", "integer"},
    {"--flight-recorder-dump-path", "text"},
    {"--flight-recorder-trace-buffer-size", "integer", "2000"},
    {"--no-flight-recorder-dump-on-timeout --disable-flight-recorder-dump-on-timeout", "off", "",
     "flight_recorder_dump_on_timeout"},
    {"--flight-recorder-include-stack-trace"},
    {"--no-flight-recorder-include-only-active --disable-flight-recorder-include-only-active", "off", "",
     "flight_recorder_include_only_active"},
    {"--no-flight-recorder-extra-dump-on-exec --disable-flight-recorder-extra-dump-on-exec", "off", "",
     "flight_recorder_extra_dump_on_exec"},
    {"--ddp-param-name-patterns-for-fp32-local-accumulation", "list"},
    {"--ddp-average-in-collective"},
    {"--overlap-param-gather-with-optimizer-step"},
    {"--no-gradient-reduce-div-fusion", "off", "", "gradient_reduce_div_fusion"},
    {"--fake-process-group"},
};

constexpr Flag kOldSizes[] = {{"--model-parallel-size", "integer"}};

}  // namespace

void add_refused_parallel(Table& t) {
  t.refuse("sharding of weights inside a tensor group", "remove it and raise --tensor-model-parallel-size",
           kWeightShards);
  t.refuse("such form of sharding over data ranks",
           "remove it; --use-megatron-fsdp with --data-parallel-sharding-strategy shards", kFsdp);
  t.refuse("such way of overlapping communication", "remove it; results do not depend on it", kOverlap);
  t.refuse("such control of process groups, buckets or start-up", "remove it; results do not depend on it",
           kGroups);
  t.refuse("size of all model parallelism together, as Megatron has none any more",
           "write --tensor-model-parallel-size, which it was", kOldSizes);
}

}  // namespace colonnade::config
