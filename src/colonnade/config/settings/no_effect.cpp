// Megatron flags that change no result here: accepted, with help on the behavior instead. The flags of a
// table share their help, so that a run reports them in one line.
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

constexpr Flag kAsyncSaves[] = {
    {"--async-save"},
    {"--async-strategy", "text", "nvrx", "", "nvrx mcore"},
    {"--use-persistent-ckpt-worker"},
    {"--async-ckpt-cpu-priority", "integer", "10"},
    {"--async-ckpt-io-priority", "integer", "3"},
    {"--async-ckpt-use-cpu-shm"},
};

constexpr Flag kParallelSaves[] = {
    {"--ckpt-fully-parallel-save"},
    {"--ckpt-fully-parallel-save-process-group", "text", "dp", "", "dp ep_dp"},
};

constexpr Flag kParallelLoads[] = {
    {"--ckpt-fully-parallel-load"},
    {"--ckpt-fully-parallel-load-exchange-algo", "text", "broadcast", "",
     "broadcast gather_rounds gather_object"},
    {"--ckpt-fully-parallel-load-per-rank-objects"},
    {"--ckpt-fully-parallel-load-process-group", "text", "dp", "", "dp ep_dp"},
};

constexpr Flag kStrictLoads[] = {
    {"--dist-ckpt-strictness", "text", "assume_ok_unexpected", "",
     "assume_ok_unexpected log_unexpected log_all raise_unexpected raise_all return_unexpected return_all "
     "ignore_all"},
    {"--no-ckpt-load-validate-sharding-integrity --disable-ckpt-load-validate-sharding-integrity", "off", "",
     "ckpt_load_validate_sharding_integrity"},
    {"--no-strict-fsdp-dtensor-load --disable-strict-fsdp-dtensor-load", "off", "",
     "strict_fsdp_dtensor_load"},
};

constexpr Flag kIntegrity[] = {
    {"--verify-integrity"},
};

constexpr Flag kFormats[] = {
    {"--dist-ckpt-format", "text", "", "dist_ckpt_format_deprecated", "torch_dist zarr"},
    {"--auto-detect-ckpt-format"},
    {"--use-dist-ckpt", "on", "", "use_dist_ckpt_deprecated"},
    {"--dist-ckpt-save-pre-mcore-014"},
    {"--dist-ckpt-optim-fully-reshardable"},
    {"--distrib-optim-fully-reshardable-mem-efficient"},
    {"--ckpt-drop-redundant-extra-state"},
};

constexpr Flag kSymmetricMatmuls[] = {
    {"--muon-use-syrk"},
};

constexpr Flag kSavePlans[] = {
    {"--ckpt-assume-constant-structure"},
    {"--ckpt-pg-tensors-cache-path", "text"},
    {"--ckpt-pg-tensors-cache-create"},
    {"--dist-ckpt-workers", "integer", "1"},
};

constexpr Flag kFileSystem[] = {
    {"--disable-msc", "on", "", "disable_msc_deprecated"},
};

constexpr Flag kAssets[] = {
    {"--no-save-tokenizer-assets --disable-save-tokenizer-assets", "off", "", "save_tokenizer_assets"},
};

constexpr Flag kPaddedVocabulary[] = {
    {"--padded-vocab-size", "integer"},
    {"--no-pad-vocab-size --disable-pad-vocab-size", "off", "", "pad_vocab_size"},
};

constexpr Flag kProfiles[] = {
    {"--pytorch-profiler-collect-callstack"},
};

constexpr Flag kTrackers[] = {
    {"--no-one-logger", "off", "", "enable_one_logger"},
    {"--one-logger-project", "text", "megatron-lm"},
    {"--one-logger-run-name", "text"},
    {"--one-logger-async"},
    {"--app-tag-run-name", "text"},
    {"--app-tag-run-version", "text", "0.0.0"},
    {"--otel-enabled"},
    {"--otel-service-name", "text"},
    {"--otel-span-groups", "text"},
};

constexpr Flag kMupWidth[] = {
    {"--mup-width-mult", "number", "1.0"},
};

constexpr Flag kLogs[] = {
    {"--config-logger-dir", "text"},
    {"--log-progress"},
    {"--tensorboard-queue-size", "integer", "1000"},
    {"--log-device-memory-used"},
    {"--log-world-size-to-tensorboard"},
    {"--log-straggler --enable-straggler-detection"},
    {"--straggler-ctrlr-port", "integer", "65535"},
    {"--straggler-minmax-count", "integer", "1"},
    {"--disable-straggler-on-startup"},
    {"--run-workload-inspector-server"},
};

constexpr Flag kSelfTests[] = {
    {"--test-mode"},
};

constexpr Flag kReruns[] = {
    {"--rerun-mode", "text", "validate_results", "", "disabled validate_results report_stats"},
};

constexpr Flag kStepControl[] = {
    {"--exit-signal-handler-for-dataloader"},
    {"--train-sync-interval", "integer"},
    {"--gpu-sniff-test-interval", "integer"},
};

constexpr Flag kFaultTolerance[] = {
    {"--enable-ft-package"},
    {"--calc-ft-timeouts"},
    {"--ft-num-warmup-iters", "integer", "5"},
};

constexpr Flag kCudaGraphs[] = {
    {"--enable-cuda-graph"},
    {"--external-cuda-graph"},
    {"--cuda-graph-impl", "text", "none", "", "none local transformer_engine full_iteration"},
    {"--cuda-graph-scope", "list", "", "cuda_graph_scope_deprecated"},
    {"--cuda-graph-modules", "list"},
    {"--cuda-graph-warmup-steps", "integer", "3"},
    {"--optimizer-cuda-graph"},
    {"--inference-cuda-graph-scope", "text", "", "", "none layer block"},
    {"--decode-only-cuda-graphs"},
};

constexpr Flag kRngTrackers[] = {
    {"--te-rng-tracker"},
    {"--inference-rng-tracker"},
};

constexpr Flag kFusions[] = {
    {"--use-fused-weighted-squared-relu"},
    {"--use-te-activation-func"},
    {"--use-transformer-engine-op-fuser"},
    {"--fused-residual-rmsnorm"},
    {"--mla-down-proj-fusion"},
    {"--no-bias-swiglu-fusion", "off", "", "bias_swiglu_fusion"},
    {"--no-bias-dropout-fusion", "off", "", "bias_dropout_fusion"},
    {"--no-rope-fusion", "off", "", "apply_rope_fusion"},
};

constexpr Flag kSpecs[] = {
    {"--enable-experimental"},
    {"--export-te-mcore-model"},
    {"--export-default-te-spec"},
    {"--export-force-local-attention"},
};

constexpr Flag kTensorOverlap[] = {
    {"--no-tp-comm-bulk-wgrad --disable-tp-comm-bulk-wgrad", "off", "", "tp_comm_bulk_wgrad"},
    {"--no-tp-comm-bulk-dgrad --disable-tp-comm-bulk-dgrad", "off", "", "tp_comm_bulk_dgrad"},
    {"--no-tp-comm-overlap-ag --disable-tp-comm-overlap-ag", "off", "", "tp_comm_overlap_ag"},
    {"--no-tp-comm-overlap-rs --disable-tp-comm-overlap-rs", "off", "", "tp_comm_overlap_rs"},
    {"--tp-comm-overlap-rs-dgrad"},
    {"--no-tp-comm-split-ag --disable-tp-comm-split-ag", "off", "", "tp_comm_split_ag"},
    {"--no-tp-comm-split-rs --disable-tp-comm-split-rs", "off", "", "tp_comm_split_rs"},
    {"--tp-comm-bootstrap-backend", "text", "nccl", "", "nccl mpi gloo"},
    {"--tp-comm-overlap-cfg", "text"},
    {"--no-clone-scatter-output-in-embedding --disable-clone-scatter-output-in-embedding", "off", "",
     "clone_scatter_output_in_embedding"},
};

constexpr Flag kPipelineOverlap[] = {
    {"--no-overlap-p2p-communication", "off", "", "overlap_p2p_comm"},
    {"--overlap-p2p-communication-warmup-flush", "on", "", "overlap_p2p_comm_warmup_flush"},
    {"--use-ring-exchange-p2p"},
    {"--pipeline-model-parallel-comm-backend", "text", "", "", "nccl ucc"},
    {"--defer-embedding-wgrad-compute"},
    {"--wgrad-deferral-limit", "integer", "0"},
    {"--overlap-param-gather-with-optimizer-step"},
};

constexpr Flag kGradients[] = {
    {"--ddp-average-in-collective"},
    {"--no-gradient-reduce-div-fusion", "off", "", "gradient_reduce_div_fusion"},
};

constexpr Flag kFp32Gradients[] = {
    {"--ddp-param-name-patterns-for-fp32-local-accumulation", "list"},
    {"--megatron-fsdp-main-grads-dtype", "text", "auto", "", "auto fp32"},
    {"--megatron-fsdp-grad-comm-dtype", "text", "auto", "", "auto fp32"},
};

constexpr Flag kFp32States[] = {
    {"--megatron-fsdp-main-params-dtype", "text", "fp32", "", "fp32"},
};

constexpr Flag kCollectives[] = {
    {"--use-sharp"},
    {"--sharp-enabled-group", "text", "", "", "dp dp_replica"},
    {"--nccl-communicator-config-path", "text"},
    {"--high-priority-stream-groups", "list"},
    {"--high-priority-a2a-comm-stream"},
    {"--symmetric-ar-type", "text", "", "", "two_shot one_shot multimem_all_reduce"},
    {"--use-nccl-ub", "on", "", "nccl_ub"},
    {"--disable-symmetric-registration"},
    {"--fsdp-manual-registration"},
    {"--create-all-gather-group"},
    {"--inference-fuse-tp-communication"},
};

constexpr Flag kFsdpBuffers[] = {
    {"--megatron-fsdp-version", "integer", "1"},        {"--fsdp-double-buffer"},
    {"--suggested-communication-unit-size", "integer"}, {"--megatron-fsdp-enable-fine-grained-param-gather"},
    {"--megatron-fsdp-max-pool-double-buffer"},         {"--fsdp-db-use-persist-buf-on-alloc-fail"},
};

constexpr Flag kStartUp[] = {
    {"--lazy-mpu-init"},
    {"--disable-gloo-process-groups", "off", "", "use_gloo_process_groups"},
    {"--distributed-timeout-seconds-after-init", "integer"},
};

constexpr Flag kFlightRecorder[] = {
    {"--flight-recorder-dump-path", "text"},
    {"--flight-recorder-trace-buffer-size", "integer", "2000"},
    {"--no-flight-recorder-dump-on-timeout --disable-flight-recorder-dump-on-timeout", "off", "",
     "flight_recorder_dump_on_timeout"},
    {"--flight-recorder-include-stack-trace"},
    {"--no-flight-recorder-include-only-active --disable-flight-recorder-include-only-active", "off", "",
     "flight_recorder_include_only_active"},
    {"--no-flight-recorder-extra-dump-on-exec --disable-flight-recorder-extra-dump-on-exec", "off", "",
     "flight_recorder_extra_dump_on_exec"},
};

void checkpoint_flags(Table& t) {
  t.group("checkpointing");
  t.no_effect("saves are synchronous: training continues once the checkpoint is on disk", kAsyncSaves);
  t.no_effect("every rank writes its own shards", kParallelSaves);
  t.no_effect("every rank reads its own shards", kParallelLoads);
  t.no_effect("loads are always strict: every tensor must be present, complete and of the expected shape",
              kStrictLoads);
  t.no_effect("checkpoint files are verified against the manifest's checksums when read", kIntegrity);
  t.no_effect(
      "checkpoints are safetensors with a manifest of global tensors, loadable in any layout; Megatron's own "
      "formats are not supported yet",
      kFormats);
  t.no_effect("the write plan is computed at every save, which takes milliseconds", kSavePlans);
  t.no_effect("files are read and written through the file system", kFileSystem);
  t.no_effect("step folders always contain the tokenizer files", kAssets);
  t.no_effect("vocabulary padding is set by --make-vocab-size-divisible-by", kPaddedVocabulary);
}

void logging_flags(Table& t) {
  t.group("profiling");
  t.no_effect("there are no Python call stacks: traces of --profile name passes and collectives", kProfiles);
  t.group("muP");
  t.no_effect("as in Megatron, the width multiplier of muP is hidden size / --mup-base-hidden-size",
              kMupWidth);
  t.group("logging");
  t.no_effect("Newton-Schulz steps use LibTorch's matmuls", kSymmetricMatmuls);
  t.no_effect(
      "nothing is uploaded: metrics.jsonl, TensorBoard files and report.html record the run; "
      "--wandb-project writes an offline run",
      kTrackers);
  t.no_effect("metrics.jsonl, TensorBoard files and report.html record step times, memory and losses", kLogs);
  t.group("fault tolerance");
  t.no_effect("steps are not rerun for comparison; losses and gradient norms are on every log line", kReruns);
  t.no_effect("no self-tests run during training", kSelfTests);
  t.no_effect("no synchronization or test runs between steps", kStepControl);
  t.no_effect("`colonnade launch` monitors and restarts the ranks", kFaultTolerance);
  t.no_effect("a watchdog names lost and late ranks without a flight recorder", kFlightRecorder);
}

/// Specs of Megatron's modules: those of its default layers are accepted; others request unsupported layers.
void spec_flags(Table& t) {
  const char* instead = "layers have one implementation, on LibTorch";
  t.no_effect(instead, kSpecs);
  t.no_op({"--spec", "list"}, instead,
          {"local", "megatron.core.models.gpt.gpt_layer_specs", "get_gpt_layer_with_transformer_engine_spec",
           "get_gpt_layer_local_spec", "get_gpt_decoder_block_spec", "gpt_layer_with_transformer_engine_spec",
           "gpt_layer_local_spec", "megatron.core.models.bert.bert_layer_specs",
           "bert_layer_with_transformer_engine_spec", "bert_layer_local_spec",
           "get_bert_layer_with_transformer_engine_spec", "megatron.core.models.T5.t5_spec",
           "transformer_engine"})
      .unsupported({"megatron.core.models.hybrid.hybrid_layer_specs", "hybrid_stack_spec",
                    "megatron.core.models.mamba.mamba_layer_specs", "mamba_stack_spec"},
                   "hybrid layers (Mamba)");
  t.no_op({"--export-model-type", "text", "GPTModel"}, instead, {"GPTModel"})
      .unsupported({"HybridModel", "MambaModel"}, "hybrid layers (Mamba)");
}

void kernel_flags(Table& t) {
  t.group("kernels");
  t.no_effect("kernels are launched individually, without CUDA graphs", kCudaGraphs);
  t.no_effect("random numbers are a function of seed, name and element in every layout", kRngTrackers);
  t.no_effect("kernel fusion is chosen by device; results do not depend on it", kFusions);
  spec_flags(t);
}

void communication_flags(Table& t) {
  t.group("communication");
  t.no_effect("the all-reduce of input gradients overlaps with weight gradients; results do not depend on it",
              kTensorOverlap);
  t.no_effect("pipeline communication overlaps with computation; results do not depend on it",
              kPipelineOverlap);
  t.no_effect("gradients are summed over the data-parallel ranks, then averaged", kGradients);
  t.no_effect("gradients are accumulated in --main-grads-dtype and reduced in it or by --grad-reduce-in-bf16",
              kFp32Gradients);
  t.no_effect("--main-params-dtype is the dtype of main parameters with every sharding", kFp32States);
  t.no_effect("collectives use NCCL's defaults; results do not depend on them", kCollectives);
  t.no_effect("each block manages the buffers of its gathered parameters", kFsdpBuffers);
  t.no_effect("process groups are created on first use; --distributed-timeout-minutes is their time-out",
              kStartUp);
}

}  // namespace

void add_no_effect(Table& t) {
  checkpoint_flags(t);
  logging_flags(t);
  kernel_flags(t);
  add_no_effect_moe(t);
  communication_flags(t);
}

}  // namespace colonnade::config
