// Flags of Megatron's that are always so here: accepted, said once.
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

bool one_tensor_rank(const Run& r) {
  return r.parallel.tensor_model_parallel_size == 1 && !r.at_fault.contains("tensor_model_parallel_size");
}
bool no_sequence_parallel(const Run& r) { return !r.parallel.sequence_parallel; }
constexpr const char* kNoExperts = "does nothing without --num-experts";
bool no_experts(const Run& r) { return r.model.moe.num_experts == 0 && !r.at_fault.contains("num_experts"); }

void always_of_the_model(Table& t) {
  t.group("transformer configuration");
  t.always({"--tp-comm-overlap"}, "sums of input gradients over tensor ranks run beside the weight gradients")
      .idle(one_tensor_rank, "does nothing with one tensor rank")
      .idle(no_sequence_parallel,
            "Megatron refuses it without --sequence-parallel; sums of input gradients over tensor ranks run "
            "beside the weight gradients all the same");
  t.always({"--init-model-with-meta-device"},
           "every rank makes the values of its own parts alone, block by block where weights are sharded");
  t.always({"--use-cpu-initialization"},
           "initial values are a function of seed, name and element in every layout");
  t.always({"--cross-entropy-loss-fusion"}, "loss and output layer are computed as one");
  t.always({"--cross-entropy-fusion-impl", "text", "native"}, "loss and output layer are computed as one",
           {"native", "te"});
  t.always({"--attention-backend", "text", "auto"},
           "the attention kernel is picked by device and shape; results do not depend on it",
           {"auto", "flash", "fused", "unfused", "local"});
  t.always({"--flash-attention-version", "integer"},
           "the attention kernel is picked by device and shape; results do not depend on it");
  t.always({"--transformer-impl", "text", "transformer_engine"},
           "layers have one implementation, on LibTorch", {"local", "transformer_engine"})
      .missing({"inference_optimized"}, "inference engine of Megatron's kind");
  t.group("mixture of experts");
  t.always({"--moe-router-dtype", "text"}, "the router computes in fp32, under float64 in float64", {"fp32"})
      .idle(no_experts, kNoExperts);
  t.always({"--moe-grouped-gemm"}, "all experts of a rank are one grouped product")
      .idle(no_experts, kNoExperts);
  t.always({"--moe-permute-fusion"}, "rows are ordered by expert in one pass").idle(no_experts, kNoExperts);
  t.always({"--moe-router-fusion"}, "choice and weights of experts are computed in one pass")
      .idle(no_experts, kNoExperts);
}

void always_of_steps(Table& t) {
  t.group("training");
  t.always({"--exit-signal-handler"}, "SIGTERM and Ctrl-C save and end the program with exit code 5");
  t.always({"--exit-signal", "text", "SIGTERM"},
           "SIGTERM and Ctrl-C save and end the program with exit code 5", {"SIGTERM", "SIGINT"});
  t.always({"--exit-signal-handler-for-training"},
           "SIGTERM and Ctrl-C save and end the program with exit code 5");
  t.always({"--manual-gc"}, "there is no garbage collector");
  t.always({"--manual-gc-interval", "integer", "0"}, "there is no garbage collector");
  t.always({"--no-manual-gc-eval --disable-manual-gc-eval", "off", "", "manual_gc_eval"},
           "there is no garbage collector");
  t.always({"--no-masked-softmax-fusion", "off", "", "masked_softmax_fusion"},
           "the attention kernel is picked by device and shape; results do not depend on it");
  t.always({"--use-flash-attn"},
           "the attention kernel is picked by device and shape; results do not depend on it");
  t.always({"--no-persist-layer-norm"}, "norms have one kernel a device");
  t.always({"--no-gradient-accumulation-fusion", "off", "", "gradient_accumulation_fusion"},
           "weight gradients are summed in the fp32 buffer either way; on the CPU those of 16-bit layers are "
           "rounded to 16 bits once per micro-batch");
  t.always({"--use-mcore-models", "on", "", "deprecated_use_mcore_models"}, "there is one model code");
  t.always({"--empty-unused-memory-level", "integer", "0"},
           "free memory stays with the allocator between steps; results do not depend on it",
           {"0", "1", "2"});
  t.group("RNG and initialization");
  t.group("checkpointing");
  t.always({"--no-load-rng"},
           "random numbers are a function of seed, name and sample; there is no state to load");
  t.always({"--no-save-rng"},
           "random numbers are a function of seed, name and sample; there is no state to save");
  t.group("mixed precision");
  t.always({"--attention-softmax-in-fp32"}, "softmax is computed in fp32");
  t.always({"--accumulate-allreduce-grads-in-fp32"},
           "gradients are accumulated in fp32, and reduced so without --grad-reduce-in-bf16");
}

void always_of_the_system(Table& t) {
  t.group("distributed init");
  t.always({"--no-align-grad-reduce --disable-align-grad-reduce", "off", "", "align_grad_reduce"},
           "when pipeline ranks reduce changes no result");
  t.always({"--local-rank", "integer", "0"}, "the rank's place comes from the environment");
  t.always({"--disable-jit-fuser"}, "nothing is compiled at run time");
  t.always({"--no-align-param-gather", "off", "", "align_param_gather"},
           "when pipeline ranks gather changes no result");
  t.always({"--no-use-layer-wise-param-layout", "off", "", "use_layer_wise_param_layout"},
           "buckets follow the order of backward");
  t.group("data and dataloader");
  t.always({"--dataloader-fast-cache-load"},
           "index caches are mapped, and belong to the data and settings that they were made for");
  t.always({"--dataloader-defer-npy-index-mmap"},
           "index caches are mapped; pages are read when they are used");
  t.always({"--per-dataset-sequences-path", "text"},
           "the sizes of data sets are read from their own headers");
  t.always({"--no-mmap-bin-files", "off", "", "mmap_bin_files"}, "data files are always memory-mapped");
  t.always({"--no-create-attention-mask-in-dataloader", "off", "", "create_attention_mask_in_dataloader"},
           "the causal mask is never stored");
  t.always({"--no-data-sharding", "off", "", "data_sharding"},
           "--dataloader-type cyclic has one random order for all ranks, whatever their number");
  t.always({"--num-dataset-builder-threads", "integer", "1"},
           "index caches are built once, by whoever comes first");
  t.group("tokenizer");
  t.always({"--trust-remote-code"}, "no code in a tokenizer's folder is run; its tokenizer.json says all");
  t.always({"--use-gigatoken"}, "ids do not depend on the code that makes them");
  t.group("logging");
  t.always({"--log-throughput"}, "throughput is on every line");
  t.always({"--timing-log-level", "integer", "0"}, "the phases of a step are always timed");
  t.always({"--no-log-loss-scale-to-tensorboard --disable-log-loss-scale-to-tensorboard", "off", "",
            "log_loss_scale_to_tensorboard"},
           "the loss scale is one value a line; it is always kept");
  t.always({"--no-barrier-with-level-1-timing", "off", "", "barrier_with_L1_time"},
           "timers wait for no other rank");
  t.group("one logger");
  t.group("rerun engine");
}

}  // namespace

void add_always(Table& t) {
  always_of_the_model(t);
  always_of_steps(t);
  always_of_the_system(t);
}

}  // namespace colonnade::config
