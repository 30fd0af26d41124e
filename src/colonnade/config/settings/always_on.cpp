// Megatron flags whose behavior is always on here: accepted without effect, noted once.
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

bool has_one_tensor_rank(const Run& r) {
  return r.parallel.tensor_model_parallel_size == 1 && !r.invalid_keys.contains("tensor_model_parallel_size");
}
bool has_no_sequence_parallel(const Run& r) { return !r.parallel.sequence_parallel; }

void model_flags(Table& t) {
  t.group("transformer configuration");
  t.no_op({"--tp-comm-overlap"}, "the all-reduce of input gradients overlaps with the weight gradients")
      .note_if(has_one_tensor_rank, "has no effect with tensor-parallel size 1")
      .note_if(
          has_no_sequence_parallel,
          "Megatron rejects it without --sequence-parallel; the all-reduce of input gradients overlaps with the "
          "weight gradients in any case");
  t.no_op({"--init-model-with-meta-device"},
          "every rank initializes only its own shards, block by block if weights are sharded");
  t.no_op({"--use-cpu-initialization"},
          "initial values are a function of seed, name and element in every layout");
  t.no_op({"--cross-entropy-loss-fusion"}, "output layer and loss are fused");
  t.no_op({"--cross-entropy-fusion-impl", "text", "native"}, "output layer and loss are fused",
          {"native", "te"});
  t.no_op({"--attention-backend", "text", "auto"},
          "the attention kernel is picked by device and shape; results do not depend on it",
          {"auto", "flash", "fused", "unfused", "local"});
  t.no_op({"--flash-attention-version", "integer"},
          "the attention kernel is picked by device and shape; results do not depend on it");
  t.no_op({"--transformer-impl", "text", "transformer_engine"}, "layers have one implementation, on LibTorch",
          {"local", "transformer_engine"})
      .unsupported({"inference_optimized"}, "Megatron-style inference engine");
}

void training_flags(Table& t) {
  t.group("training");
  t.no_op({"--exit-signal-handler"}, "SIGTERM and Ctrl-C save and end the program with exit code 5");
  t.no_op({"--exit-signal", "text", "SIGTERM"},
          "SIGTERM and Ctrl-C save and end the program with exit code 5", {"SIGTERM", "SIGINT"});
  t.no_op({"--exit-signal-handler-for-training"},
          "SIGTERM and Ctrl-C save and end the program with exit code 5");
  t.no_op({"--manual-gc"}, "there is no garbage collector");
  t.no_op({"--manual-gc-interval", "integer", "0"}, "there is no garbage collector");
  t.no_op({"--no-manual-gc-eval --disable-manual-gc-eval", "off", "", "manual_gc_eval"},
          "there is no garbage collector");
  t.no_op({"--no-masked-softmax-fusion", "off", "", "masked_softmax_fusion"},
          "the attention kernel is picked by device and shape; results do not depend on it");
  t.no_op({"--use-flash-attn"},
          "the attention kernel is picked by device and shape; results do not depend on it");
  t.no_op({"--no-persist-layer-norm"}, "there is one norm kernel per device");
  t.no_op(
      {"--no-gradient-accumulation-fusion", "off", "", "gradient_accumulation_fusion"},
      "weight gradients are accumulated in the fp32 buffer either way; on the CPU those of 16-bit layers are "
      "rounded to 16 bits once per micro-batch");
  t.no_op({"--use-mcore-models", "on", "", "deprecated_use_mcore_models"},
          "there is one model implementation");
  t.no_op({"--empty-unused-memory-level", "integer", "0"},
          "the allocator keeps free memory between steps; results do not depend on it", {"0", "1", "2"});
  t.group("RNG and initialization");
  t.group("checkpointing");
  t.no_op({"--no-load-rng"},
          "random numbers are a function of seed, name and sample; there is no state to load");
  t.no_op({"--no-save-rng"},
          "random numbers are a function of seed, name and sample; there is no state to save");
  t.group("mixed precision");
  t.no_op({"--attention-softmax-in-fp32"}, "softmax is computed in fp32");
  t.no_op({"--accumulate-allreduce-grads-in-fp32"},
          "gradients are accumulated in fp32, and reduced in fp32 unless --grad-reduce-in-bf16 is set")
      .note_if([](const Run& r) { return r.optimizer.main_grads_dtype != Dtype::kFloat32; },
               "gradients are accumulated and reduced in --main-grads-dtype");
}

void system_flags(Table& t) {
  t.group("distributed init");
  t.no_op({"--no-align-grad-reduce --disable-align-grad-reduce", "off", "", "align_grad_reduce"},
          "results do not depend on the timing of gradient reductions");
  t.no_op({"--local-rank", "integer", "0"}, "the local rank comes from the environment");
  t.no_op({"--disable-jit-fuser"}, "nothing is compiled at run time");
  t.no_op({"--no-align-param-gather", "off", "", "align_param_gather"},
          "results do not depend on the timing of parameter all-gathers");
  t.no_op({"--no-use-layer-wise-param-layout", "off", "", "use_layer_wise_param_layout"},
          "buckets follow the order of the backward pass");
  t.group("data and dataloader");
  t.no_op({"--dataloader-fast-cache-load"},
          "index caches are memory-mapped and identified by the data and settings they were built for");
  t.no_op({"--dataloader-defer-npy-index-mmap"}, "index caches are memory-mapped; pages are read on demand");
  t.no_op({"--per-dataset-sequences-path", "text"}, "dataset sizes are read from the dataset headers");
  t.no_op({"--no-mmap-bin-files", "off", "", "mmap_bin_files"}, "data files are always memory-mapped");
  t.no_op({"--no-create-attention-mask-in-dataloader", "off", "", "create_attention_mask_in_dataloader"},
          "the causal mask is never stored");
  t.no_op({"--no-data-sharding", "off", "", "data_sharding"},
          "--dataloader-type cyclic has one random order for any number of ranks");
  t.no_op({"--num-dataset-builder-threads", "integer", "1"},
          "index caches are built once, by the first rank that needs them");
  t.group("tokenizer");
  t.no_op({"--trust-remote-code"}, "code in a tokenizer folder is never run; tokenizer.json is sufficient");
  t.no_op({"--use-gigatoken"}, "token ids do not depend on the implementation");
  t.group("logging");
  t.no_op({"--log-throughput"}, "throughput is on every log line");
  t.no_op({"--no-log-loss-scale-to-tensorboard --disable-log-loss-scale-to-tensorboard", "off", "",
           "log_loss_scale_to_tensorboard"},
          "the loss scale is always logged");
  t.no_op({"--no-barrier-with-level-1-timing", "off", "", "barrier_with_L1_time"},
          "timers do not synchronize ranks");
  t.group("one logger");
  t.group("rerun engine");
}

}  // namespace

void add_no_op(Table& t) {
  model_flags(t);
  add_no_op_moe(t);
  training_flags(t);
  system_flags(t);
}

}  // namespace colonnade::config
