// Flags of Megatron's about steps, optimizer, data and checkpoints that this version refuses, each with the
// reason and a way out.
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

constexpr Flag kOptimizers[] = {
    {"--fp32-residual-connection"},
    {"--muon-momentum", "number", "0.9"},
    {"--muon-no-split-qkv", "off", "", "muon_split_qkv"},
    {"--muon-nesterov"},
    {"--muon-scale-mode", "text", "spectral"},
    {"--muon-fp32-matmul-prec", "text", "medium"},
    {"--muon-coefficient-type", "text", "quintic"},
    {"--muon-num-ns-steps", "integer", "5"},
    {"--muon-tp-mode", "text", "duplicated"},
    {"--muon-use-syrk"},
    {"--muon-extra-scale-factor", "number", "1.0"},
    {"--muon-scalar-optimizer", "text", "adam"},
    {"--lion-beta1", "number", "0.95"},
    {"--lion-beta2", "number", "0.98"},
    {"--no-weight-decay-cond-type", "text"},
    {"--optimizer-cuda-graph"},
    {"--overlap-cpu-optimizer-d2h-h2d"},
    {"--dump-param-to-param-group-map", "text"},
    {"--no-pin-cpu-grads", "off", "", "pin_cpu_grads"},
    {"--no-pin-cpu-params", "off", "", "pin_cpu_params"},
    {"--fp16-lm-cross-entropy"},
    {"--output-logit-dtype", "text", "", "logit_dtype"},
    {"--logits-save-dtype", "text", "fp16"},
    {"--use-precision-aware-optimizer"},
    {"--main-grads-dtype", "text", "fp32"},
    {"--main-params-dtype", "text", "fp32"},
    {"--exp-avg-dtype", "text", "fp32"},
    {"--exp-avg-sq-dtype", "text", "fp32"},
};

constexpr Flag kWarmup[] = {{"--warmup", "integer"}};

constexpr Flag kDecoupled[] = {
    {"--decoupled-lr", "number"},
    {"--decoupled-min-lr", "number"},
};

constexpr Flag kFrozen[] = {{"--freeze-all-layers"}};

constexpr Flag kRampUp[] = {
    {"--rampup-batch-size", "list"},
    {"--step-batch-size-schedule", "text"},
};

constexpr Flag kBatches[] = {
    {"--decrease-batch-size-if-needed"},
    {"--check-weight-hash-across-dp-replicas-interval", "integer"},
    {"--gpu-sniff-test-interval", "integer"},
    {"--train-sync-interval", "integer"},
    {"--iterations-to-skip", "list"},
    {"--batch-size", "integer"},
    {"--check-for-large-grads"},
    {"--result-rejected-tracker-filename", "text"},
    {"--eval-global-batch-size", "integer"},
    {"--eval-micro-batch-size", "integer"},
    {"--indexer-batch-size", "integer", "128"},
    {"--error-injection-rate", "integer", "0"},
    {"--error-injection-type", "text", "transient_error"},
    {"--check-for-spiky-loss"},
};

constexpr Flag kValidation[] = {
    {"--start-eval-at-iter", "integer"},
    {"--test-mode"},
};

constexpr Flag kCheckpoints[] = {
    {"--save-params-interval", "integer"},
    {"--save-activations-interval", "integer"},
    {"--save-wgrads-interval", "integer"},
    {"--save-dgrads-interval", "integer"},
    {"--load-main-params-from-ckpt"},
    {"--non-persistent-save-interval", "integer"},
    {"--non-persistent-ckpt-type", "text"},
    {"--non-persistent-global-ckpt-dir", "text"},
    {"--non-persistent-local-ckpt-dir", "text"},
    {"--non-persistent-local-ckpt-algo", "text", "fully_parallel"},
    {"--use-mp-args-from-checkpoint-args"},
    {"--no-use-tokenizer-model-from-checkpoint-args --disable-use-tokenizer-model-from-checkpoint-args",
     "off", "", "use_tokenizer_model_from_checkpoint_args"},
    {"--ckpt-convert-format", "text"},
    {"--ckpt-convert-save", "text"},
    {"--ckpt-convert-update-legacy-dist-opt-format"},
    {"--async-save"},
    {"--async-strategy", "text", "nvrx"},
    {"--use-persistent-ckpt-worker"},
    {"--async-ckpt-cpu-priority", "integer", "10"},
    {"--async-ckpt-io-priority", "integer", "3"},
    {"--async-ckpt-use-cpu-shm"},
    {"--ckpt-fully-parallel-load-exchange-algo", "text", "broadcast"},
    {"--ckpt-fully-parallel-load-per-rank-objects"},
    {"--ckpt-fully-parallel-save-process-group", "text", "dp"},
    {"--ckpt-fully-parallel-load-process-group", "text", "dp"},
    {"--ckpt-pg-tensors-cache-path", "text"},
    {"--ckpt-pg-tensors-cache-create"},
    {"--no-ckpt-load-validate-sharding-integrity --disable-ckpt-load-validate-sharding-integrity", "off", "",
     "ckpt_load_validate_sharding_integrity"},
    {"--dist-ckpt-strictness", "text", "assume_ok_unexpected"},
    {"--dist-ckpt-save-pre-mcore-014"},
    {"--distrib-optim-fully-reshardable-mem-efficient"},
    {"--no-save-tokenizer-assets --disable-save-tokenizer-assets", "off", "", "save_tokenizer_assets"},
    {"--replication"},
    {"--replication-jump", "integer"},
    {"--replication-factor", "integer", "2"},
    {"--verify-integrity"},
    {"--override-ckpt-iteration", "integer"},
    {"--dist-ckpt-format", "text", "", "dist_ckpt_format_deprecated"},
    {"--dist-ckpt-workers", "integer", "1"},
    {"--ckpt-drop-redundant-extra-state"},
};

constexpr Flag kVocabularies[] = {
    {"--padded-vocab-size", "integer"},
    {"--no-pad-vocab-size --disable-pad-vocab-size", "off", "", "pad_vocab_size"},
};
constexpr Flag kMetadata[] = {{"--tokenizer-metadata", "text", "", "metadata_path"}};
constexpr Flag kAddedTokens[] = {
    {"--tokenizer-special-tokens", "list", "", "special_tokens"},
    {"--tokenizer-sentencepiece-legacy"},
};
constexpr Flag kWhiteSpace[] = {
    {"--no-tokenizer-sentencepiece-ignore-extra-whitespaces "
     "--disable-tokenizer-sentencepiece-ignore-extra-whitespaces",
     "off", "", "tokenizer_sentencepiece_ignore_extra_whitespaces"},
};
constexpr Flag kSlowTokenizers[] = {{"--tokenizer-hf-no-use-fast"}};
constexpr Flag kNullIds[] = {
    {"--null-tokenizer-eod-id", "integer"},
    {"--null-tokenizer-pad-id", "integer", "-1"},
};

constexpr Flag kMasking[] = {{"--dataloader-inter-document-masking"}};

constexpr Flag kReading[] = {
    {"--phase-transition-iterations", "text"},
    {"--sample-rate", "number", "1.0"},
    {"--object-storage-cache-path", "text"},
    {"--logits-save-top-k", "integer"},
    {"--logits-save-top-p", "number"},
    {"--logits-save-top-p-min-k", "integer", "1"},
    {"--logits-save-dir", "text"},
    {"--logits-load-dir", "text"},
    {"--logits-load-decode-threads", "integer", "4"},
    {"--logits-load-prefetch-factor", "integer", "3"},
    {"--logits-load-msc-prefetch-depth", "integer", "2"},
    {"--logits-load-kd-loss-alpha", "number", "1.0"},
    {"--logits-load-ignore-errors"},
};

void refuse_of_tokenizers(Table& t) {
  t.refuse("size of the vocabulary beside the tokenizer's",
           "remove it; --make-vocab-size-divisible-by says how that is padded", kVocabularies);
  t.refuse("file of metadata of a tokenizer", "remove it; --tokenizer-type says how its files are read",
           kMetadata);
  t.refuse("special tokens beside those of the tokenizer's files",
           "name them in tokenizer_config.json, or train the .model with them", kAddedTokens);
  t.refuse("white space kept against the rule of a SentencePiece model",
           "use a model that keeps it, as tokenizer train makes them", kWhiteSpace);
  t.refuse("slow tokenizers of Transformers", "remove it; the folder's tokenizer.json is read",
           kSlowTokenizers);
  t.refuse("special ids of a NullTokenizer's that can be chosen",
           "remove it; the last id below --vocab-size ends a document, and none is a pad", kNullIds);
}

}  // namespace

void add_refused_training(Table& t) {
  t.refuse("such optimizer or storage precision",
           "remove it; --optimizer is adam or sgd, gradients and states are fp32", kOptimizers);
  t.refuse("old spelling of warm-up", "use --lr-warmup-fraction, --lr-warmup-iters or --lr-warmup-samples",
           kWarmup);
  t.refuse("learning rate of their own for the embedding and the output layer",
           "remove it; --lr and --min-lr hold for all weights", kDecoupled);
  t.refuse("frozen layers", "remove it; all weights are trained", kFrozen);
  t.refuse("batch size that changes during the run", "remove it; --global-batch-size holds for every step",
           kRampUp);
  t.refuse("such control of steps and batches",
           "remove it; --micro-batch-size and --global-batch-size set the batch", kBatches);
  t.refuse("such way of validation", "remove it; --eval-iters and --eval-interval set it", kValidation);
  t.refuse("such way of writing or reading checkpoints", "remove it; any layout loads any checkpoint here",
           kCheckpoints);
  refuse_of_tokenizers(t);
  t.refuse(
      "mask of documents by their lengths",
      "write --reset-attention-mask --reset-position-ids, which do the same where each document ends with an end "
      "of document (--append-eod) and has none inside",
      kMasking);
  t.refuse("such way of reading data", "remove it; --data-path takes prefixes of .bin/.idx files", kReading);
}

}  // namespace colonnade::config
