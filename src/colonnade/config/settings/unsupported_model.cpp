// Megatron flags on the model that are not supported, by missing feature.
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

constexpr Flag kMlpChunks[] = {
    {"--mlp-chunks-for-training", "integer", "1"},
};

constexpr Flag kMla[] = {
    {"--cache-mla-latents"},
};

constexpr Flag kMtp[] = {
    {"--mtp-standalone"},
    {"--mtp-use-repeated-layer"},
    {"--mtp-detach-heads"},
    {"--mtp-hsm"},
    {"--mtp-hybrid-override-pattern", "text"},
};

constexpr Flag kLowPrecision[] = {
    {"--fp8-format", "text", "", "fp8"},
    {"--fp8-recipe", "text", "delayed"},
    {"--fp8-quantizer-factory", "text"},
    {"--fp8-margin", "integer", "0"},
    {"--fp8-interval", "integer", "1"},
    {"--fp8-amax-history-len", "integer", "1"},
    {"--fp8-amax-compute-algo", "text", "most_recent"},
    {"--no-fp8-wgrad --disable-fp8-wgrad", "off", "", "fp8_wgrad"},
    {"--fp8-output-proj"},
    {"--num-layers-at-start-in-bf16", "integer", "1"},
    {"--num-layers-at-end-in-bf16", "integer", "1"},
    {"--use-kitchen-attention"},
    {"--kitchen-attention-backend", "text", "sdpa"},
    {"--fp4-format", "text", "", "fp4"},
    {"--fp4-recipe", "text", "nvfp4"},
    {"--fp4-quantizer-factory", "text"},
    {"--reuse-grad-buf-for-mxfp8-param-ag"},
    {"--keep-fp8-transpose-cache"},
    {"--fp4-param-gather"},
    {"--fp8-param-gather"},
    {"--kitchen-config-file", "text"},
    {"--kitchen-recipe-number", "integer"},
    {"--first-last-layers-bf16"},
    {"--te-precision-config-file", "text"},
};

constexpr Flag kReducedPrecisionGemms[] = {
    {"--disable-bf16-reduced-precision-matmul"},
};

constexpr Flag kHybrid[] = {
    {"--is-hybrid-model"},
    {"--mamba-state-dim", "integer", "128"},
    {"--mamba-head-dim", "integer", "64"},
    {"--mamba-num-groups", "integer", "8"},
    {"--mamba-num-heads", "integer"},
    {"--disable-mamba-mem-eff-path", "off", "", "use_mamba_mem_eff_path"},
    {"--mamba-training-ssm-states-dtype", "text"},
    {"--inference-dynamic-batching-mamba-memory-ratio", "number"},
    {"--inference-dynamic-batching-prefix-caching-mamba-gb", "number"},
    {"--mamba-inference-conv-states-dtype", "text", "bf16"},
    {"--mamba-inference-ssm-states-dtype", "text", "bf16"},
    {"--hybrid-layer-pattern", "text"},
    {"--hybrid-override-pattern", "text"},
    {"--flex-hetero-mamba"},
    {"--force-mamba", "list"},
    {"--mamba-per-list", "list"},
    {"--mamba-int-list", "list"},
    {"--gdp-num-householder", "integer", "3"},
    {"--gdp-cutedsl-kernel"},
    {"--gdp-num-chunk-states-to-recompute", "integer", "2"},
};

constexpr Flag kSparseAttention[] = {
    {"--dsa-indexer-n-heads", "integer"},
    {"--dsa-indexer-head-dim", "integer"},
    {"--dsa-indexer-topk", "integer"},
    {"--dsa-indexer-topk-freq", "integer", "1"},
    {"--dsa-indexer-skip-topk-offset", "integer", "0"},
    {"--dsa-indexer-loss-coeff", "number"},
    {"--dsa-indexer-use-sparse-loss"},
    {"--dsa-kernel-backend", "text", "none"},
    {"--dsa-indexer-rope-interleaved"},
    {"--no-dsa-indexer-rotate-activation --disable-dsa-indexer-rotate-activation", "off", "",
     "dsa_indexer_rotate_activation"},
    {"--no-dsa-indexer-scoring-relu --disable-dsa-indexer-scoring-relu", "off", "",
     "dsa_indexer_scoring_relu"},
    {"--dsa-indexer-k-norm-epsilon", "number"},
    {"--dsa-indexer-k-norm-fp32"},
};

constexpr Flag kDeltaRule[] = {
    {"--experimental-attention-variant", "text"}, {"--linear-conv-kernel-dim", "integer", "4"},
    {"--linear-key-head-dim", "integer", "128"},  {"--linear-value-head-dim", "integer", "128"},
    {"--linear-num-key-heads", "integer", "16"},  {"--linear-num-value-heads", "integer", "32"},
    {"--linear-attention-freq", "text"},
};

constexpr Flag kHyperConnections[] = {
    {"--enable-mhc-connections"},
    {"--mhc-num-residual-streams", "integer", "4"},
    {"--mhc-sinkhorn-iterations", "integer", "20"},
    {"--mhc-init-gating-factor", "number", "0.01"},
    {"--mhc-recompute-layer-num", "integer"},
};

constexpr Flag kHeterogeneous[] = {
    {"--heterogeneous-layers-config-path", "text"},
    {"--heterogeneous-layers-config-encoded-json", "text"},
};

constexpr Flag kPositions[] = {
    {"--mrope-section", "list"},
};

constexpr Flag kOffload[] = {
    {"--cpu-offloading-num-layers", "integer", "0"},
    {"--cpu-offloading-retain-pinned-cpu-buffers"},
    {"--fine-grained-activation-offloading"},
    {"--offload-modules", "list"},
    {"--min-offloaded-tensor-size", "integer", "1048576"},
    {"--delay-offload-until-cuda-graph"},
    {"--delta-offload-bytes-across-pp-ranks", "integer", "0"},
    {"--activation-offload-fraction", "number", "1.0"},
    {"--fine-grained-offloading-max-inflight-offloads", "integer"},
    {"--optimizer-cpu-offload --cpu-offload-optimizer"},
    {"--optimizer-offload-fraction", "number", "1.0"},
    {"--use-torch-optimizer-for-cpu-offload"},
    {"--rl-offload-optimizer-during-inference"},
    {"--rl-offload-inference-model-weights-when-idle"},
    {"--overlap-cpu-optimizer-d2h-h2d"},
    {"--no-pin-cpu-grads", "off", "", "pin_cpu_grads"},
    {"--no-pin-cpu-params", "off", "", "pin_cpu_params"},
};

constexpr Flag kOldRecomputation[] = {
    {"--checkpoint-activations"},
};

constexpr Flag kInitialization[] = {
    {"--no-initialization", "off", "", "perform_initialization"},
    {"--data-parallel-random-init"},
};

constexpr Flag kGptOssShorthand[] = {
    {"--enable-gpt-oss"},
};

constexpr Flag kOnnx[] = {
    {"--onnx-safe", "text"},
};

}  // namespace

void add_unsupported_model(Table& t) {
  add_unsupported_routing(t);
  t.unsupported("MLP chunking along the sequence", "remove it; --recompute-modules mlp saves memory",
                kMlpChunks);
  add_unsupported_dispatch(t);
  t.unsupported("MLA latent cache in generation", "remove it", kMla);
  t.unsupported("repeated, detached or standalone MTP layers",
                "remove it; --mtp-num-layers adds one MTP layer per additional predicted token", kMtp);
  t.unsupported("FP8, FP4 and Transformer Engine recipes", "remove it and use --bf16", kLowPrecision);
  t.unsupported("control of reduced-precision bf16 GEMMs", "remove it; LibTorch's default applies",
                kReducedPrecisionGemms);
  t.unsupported("hybrid layers (Mamba)", "train a transformer: --num-layers", kHybrid);
  t.unsupported("sparse attention (DSA)", "remove it; --window-size limits attention", kSparseAttention);
  t.unsupported("linear attention (delta rule) or other attention variants",
                "remove it; --multi-latent-attention and --window-size are supported", kDeltaRule);
  t.unsupported("hyper-connections (mHC)", "remove it", kHyperConnections);
  t.unsupported("heterogeneous layers", "remove it; all layers have the same sizes", kHeterogeneous);
  t.unsupported("multi-axis RoPE", "use --position-embedding-type rope, yarn or learned_absolute",
                kPositions);
  t.unsupported("offloading of activations and optimizer states",
                "remove it; --recompute-granularity and larger parallel sizes save memory", kOffload);
  t.unsupported(
      "old recomputation flag, which Megatron removed",
      "write --recompute-granularity full --recompute-method uniform --recompute-num-layers 1, or --recompute-activations for the selective form",
      kOldRecomputation);
  t.unsupported("per-rank or skipped initialization",
                "remove it; weights are initialized, equal in every layout", kInitialization);
  t.unsupported("shorthand for GPT-OSS settings",
                "use --pretrained-checkpoint with its Hugging Face folder; config.json has the settings",
                kGptOssShorthand);
  t.unsupported("export to ONNX", "remove it", kOnnx);
}

}  // namespace colonnade::config
