// Megatron flags on parallelism and communication that are not supported, by missing feature.
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

constexpr Flag kWeightShards[] = {
    {"--expert-tensor-parallel-num-weight-shards", "integer"}, {"--gtp-expert-remat-nccl-ub"},
    {"--tensor-parallel-num-weight-shards", "integer"},        {"--gtp-remat-opt-in-modules", "list"},
    {"--gtp-remat-reduce-scatter-with-fp32-accumulation"},     {"--gtp-remat-nccl-ub"},
};

constexpr Flag kFsdp2[] = {
    {"--use-torch-fsdp2"},
};

constexpr Flag kHsdp[] = {
    {"--enable-full-sharding-in-hsdp"},
};

constexpr Flag kFakeGroups[] = {
    {"--fake-process-group"},
};

constexpr Flag kOldSizes[] = {
    {"--model-parallel-size", "integer"},
};

}  // namespace

void add_unsupported_parallel(Table& t) {
  t.unsupported("sharding of weights inside a tensor group (GTP)",
                "remove it and raise --tensor-model-parallel-size", kWeightShards);
  t.unsupported("PyTorch FSDP2",
                "use --use-megatron-fsdp with --data-parallel-sharding-strategy optim_grads_params", kFsdp2);
  t.unsupported("full sharding across distributed-optimizer instances",
                "use --outer-dp-sharding-strategy optim", kHsdp);
  t.unsupported("fake process group", "remove it; `colonnade plan` runs without ranks", kFakeGroups);
  t.unsupported("single model-parallel size, which Megatron removed",
                "write --tensor-model-parallel-size instead", kOldSizes);
}

}  // namespace colonnade::config
