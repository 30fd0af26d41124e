// Flags of Megatron's about the model that this version refuses, each with the reason and a way out.
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

constexpr Flag kMoe[] = {
    {"--expert-tensor-parallel-num-weight-shards", "integer"},
    {"--overlap-moe-expert-parallel-comm"},
    {"--overlap-dispatch-backward-with-experts-wgrad"},
    {"--ep-overlap-early-attn-memory-release"},
    {"--high-priority-a2a-comm-stream"},
    {"--use-grouped-gemm-for-shared-expert"},
    {"--moe-shared-expert-glu-interleave-size", "integer"},
    {"--moe-enable-routing-replay"},
    {"--moe-router-padding-for-quantization"},
    {"--moe-router-padding-for-fp8"},
    {"--moe-router-quantile-balancing-ema", "number", "0.0"},
    {"--moe-router-force-load-balancing"},
    {"--moe-router-force-biased", "number"},
    {"--use-grouped-gemm-for-dense-mlp"},
    {"--moe-use-grouped-tensor"},
    {"--moe-single-grouped-weight"},
    {"--moe-single-grouped-bias"},
    {"--moe-enable-deepep"},
    {"--moe-flex-dispatcher-backend", "text", "deepep"},
    {"--moe-permute-fusion-into-hybridep"},
    {"--moe-hybridep-pad-uneven-dispatch-inputs"},
    {"--moe-pad-experts-for-cuda-graph-inference"},
    {"--moe-apply-probs-on-input"},
    {"--moe-latent-size", "integer"},
    {"--moe-flex-dispatcher-num-sms", "integer"},
    {"--moe-deepep-num-sms", "integer"},
    {"--moe-hybridep-num-sms", "integer"},
    {"--moe-hybridep-num-blocks-permute", "integer"},
    {"--moe-hybridep-num-blocks-unpermute", "integer"},
    {"--moe-hybridep-num-sms-preprocessing", "integer", "108"},
    {"--moe-ncclep-zero-copy"},
    {"--moe-dispatch-fwd-dtype", "text", "bf16"},
    {"--moe-combine-bwd-dtype", "text", "bf16"},
    {"--moe-mlp-glu-interleave-size", "integer"},
    {"--moe-expert-rank-capacity-factor", "number"},
    {"--moe-paged-stash"},
    {"--moe-paged-stash-page-size", "integer", "64"},
    {"--moe-paged-stash-buffer-size-factor-cuda", "number", "1.1"},
    {"--moe-paged-stash-buffer-size-factor-cpu", "number", "0.0"},
    {"--moe-per-layer-logging"},
    {"--save-tokens-per-expert-interval", "integer"},
    {"--gtp-expert-remat-nccl-ub"},
    {"--moe-use-upcycling"},
    {"--moe-upcycling-granularity", "integer", "1"},
    {"--moe-routing-trace-path", "text"},
    {"--moe-routing-trace-max-training-iters", "integer"},
    {"--moe-routing-trace-capture-logits"},
    {"--moe-routing-trace-capture-hidden-states"},
    {"--moe-routing-trace-dump-weights"},
};

constexpr Flag kMoeRecompute[] = {{"--moe-layer-recompute"}};

constexpr Flag kMla[] = {
    {"--cache-mla-latents"},
    {"--mla-down-proj-fusion"},
};

constexpr Flag kMtp[] = {
    {"--mtp-standalone"},
    {"--mtp-use-repeated-layer"},
    {"--mtp-detach-heads"},
    {"--mtp-hsm"},
    {"--mtp-hybrid-override-pattern", "text"},
};

constexpr Flag kLowPrecision[] = {
    {"--use-transformer-engine-op-fuser"},
    {"--fp8-format", "text", "", "fp8"},
    {"--fp8-recipe", "text", "delayed"},
    {"--fp8-quantizer-factory", "text"},
    {"--fp8-margin", "integer", "0"},
    {"--fp8-interval", "integer", "1"},
    {"--fp8-amax-history-len", "integer", "1"},
    {"--fp8-amax-compute-algo", "text", "most_recent"},
    {"--no-fp8-wgrad --disable-fp8-wgrad", "off", "", "fp8_wgrad"},
    {"--fp8-output-proj"},
    {"--first-last-layers-bf16"},
    {"--num-layers-at-start-in-bf16", "integer", "1"},
    {"--num-layers-at-end-in-bf16", "integer", "1"},
    {"--use-kitchen-attention"},
    {"--kitchen-attention-backend", "text", "sdpa"},
    {"--fp4-format", "text", "", "fp4"},
    {"--fp4-recipe", "text", "nvfp4"},
    {"--fp4-quantizer-factory", "text"},
    {"--use-te-activation-func"},
    {"--reuse-grad-buf-for-mxfp8-param-ag"},
    {"--keep-fp8-transpose-cache"},
    {"--fp4-param-gather"},
    {"--fp8-param-gather"},
    {"--te-precision-config-file", "text"},
    {"--kitchen-config-file", "text"},
    {"--kitchen-recipe-number", "integer"},
};

constexpr Flag kReducedProducts[] = {{"--disable-bf16-reduced-precision-matmul"}};

constexpr Flag kLayerKinds[] = {
    {"--qk-l2-norm"},
    {"--qk-clip"},
    {"--qk-clip-alpha", "number", "0.5"},
    {"--qk-clip-threshold", "number", "100"},
    {"--attention-output-gate"},
    {"--experimental-attention-variant", "text"},
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
    {"--linear-conv-kernel-dim", "integer", "4"},
    {"--linear-key-head-dim", "integer", "128"},
    {"--linear-value-head-dim", "integer", "128"},
    {"--linear-num-key-heads", "integer", "16"},
    {"--linear-num-value-heads", "integer", "32"},
    {"--use-fused-weighted-squared-relu"},
    {"--enable-mhc-connections"},
    {"--mhc-num-residual-streams", "integer", "4"},
    {"--mhc-sinkhorn-iterations", "integer", "20"},
    {"--mhc-init-gating-factor", "number", "0.01"},
    {"--mhc-recompute-layer-num", "integer"},
    {"--is-hybrid-model"},
    {"--mamba-state-dim", "integer", "128"},
    {"--mamba-head-dim", "integer", "64"},
    {"--mamba-num-groups", "integer", "8"},
    {"--mamba-num-heads", "integer"},
    {"--gdp-num-householder", "integer", "3"},
    {"--disable-mamba-mem-eff-path", "off", "", "use_mamba_mem_eff_path"},
    {"--gdp-cutedsl-kernel"},
    {"--gdp-num-chunk-states-to-recompute", "integer", "2"},
    {"--no-rope-freq", "text"},
    {"--mamba-training-ssm-states-dtype", "text"},
    {"--linear-attention-freq", "text"},
    {"--heterogeneous-layers-config-path", "text"},
    {"--heterogeneous-layers-config-encoded-json", "text"},
    {"--log-max-attention-logit"},
    {"--inference-dynamic-batching-mamba-memory-ratio", "number"},
    {"--inference-dynamic-batching-prefix-caching-mamba-gb", "number"},
    {"--mamba-inference-conv-states-dtype", "text", "bf16"},
    {"--mamba-inference-ssm-states-dtype", "text", "bf16"},
    {"--hybrid-layer-pattern", "text"},
    {"--hybrid-override-pattern", "text"},
};

constexpr Flag kPositions[] = {
    {"--mrope-section", "list"},
    {"--rope-type", "text"},
};

constexpr Flag kMup[] = {
    {"--use-mup"},
    {"--mup-width-mult", "number", "1.0"},
    {"--mup-base-hidden-size", "integer"},
    {"--mup-embedding-mult", "number", "1.0"},
    {"--mup-output-mult", "number", "1.0"},
    {"--mup-base-head-dim", "number"},
    {"--mup-attn-scale-power", "number", "1.0"},
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
};

constexpr Flag kOldRecomputation[] = {{"--checkpoint-activations"}};

}  // namespace

void add_refused_model(Table& t) {
  t.refuse("such form of experts", "remove it; docs/reference/settings.md lists the forms there are", kMoe);
  t.refuse("flag of its own for making experts again",
           "write --recompute-granularity selective --recompute-modules moe", kMoeRecompute);
  t.refuse("such form of multi-latent attention", "remove it", kMla);
  t.refuse("such form of multi-token prediction", "remove it", kMtp);
  t.refuse("FP8, FP4 and Transformer Engine recipes", "remove it and use --bf16", kLowPrecision);
  t.refuse("choice of how LibTorch sums products of bf16", "remove it; LibTorch's own choice holds",
           kReducedProducts);
  t.refuse("such kind of layer", "remove it; docs/reference/settings.md lists the kinds there are",
           kLayerKinds);
  t.refuse("multi-axis and relative positions, or another name of YaRN",
           "use --position-embedding-type rope, yarn or learned_absolute", kPositions);
  t.refuse("muP scaling", "set --init-method-std and --lr by hand", kMup);
  t.refuse("offloading of activations and states",
           "remove it; --recompute-granularity saves memory, and so do larger parallel sizes", kOffload);
  t.refuse("old name of recomputation, as Megatron has none any more",
           "write --recompute-granularity full --recompute-method uniform --recompute-num-layers 1, or "
           "--recompute-activations for the selective form",
           kOldRecomputation);
}

}  // namespace colonnade::config
