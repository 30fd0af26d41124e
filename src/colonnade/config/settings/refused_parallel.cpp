// Megatron's flags about ranks and communication that this version rejects, by the feature that is missing.
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

void add_refused_parallel(Table& t) {
  t.refuse("sharding of weights inside a tensor group (GTP)",
           "remove it and raise --tensor-model-parallel-size", kWeightShards);
  t.refuse("FSDP2 of PyTorch",
           "use --use-megatron-fsdp with --data-parallel-sharding-strategy optim_grads_params", kFsdp2);
  t.refuse("full sharding between instances of the optimizer", "use --outer-dp-sharding-strategy optim",
           kHsdp);
  t.refuse("fake process group", "remove it; `colonnade plan` needs no ranks", kFakeGroups);
  t.refuse("size of all model parallelism together, as Megatron has none any more",
           "write --tensor-model-parallel-size, which it was", kOldSizes);
}

}  // namespace colonnade::config
