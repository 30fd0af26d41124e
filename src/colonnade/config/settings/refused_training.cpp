// Megatron's flags about steps, optimizer, data and checkpoints that this version rejects, by the feature
// that is missing.
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

constexpr Flag kMuon[] = {
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
};

constexpr Flag kLion[] = {
    {"--lion-beta1", "number", "0.95"},
    {"--lion-beta2", "number", "0.98"},
};

constexpr Flag kStateDtypes[] = {
    {"--main-grads-dtype", "text", "fp32"},
    {"--main-params-dtype", "text", "fp32"},
    {"--exp-avg-dtype", "text", "fp32"},
    {"--exp-avg-sq-dtype", "text", "fp32"},
};

constexpr Flag kDecayChoice[] = {
    {"--dump-param-to-param-group-map", "text"},
};

constexpr Flag kLogitDtype[] = {
    {"--fp16-lm-cross-entropy"},
    {"--output-logit-dtype", "text", "", "logit_dtype"},
};

constexpr Flag kWarmup[] = {
    {"--warmup", "integer"},
};

constexpr Flag kDecoupled[] = {
    {"--decoupled-lr", "number"},
    {"--decoupled-min-lr", "number"},
};

constexpr Flag kFrozen[] = {
    {"--freeze-all-layers"},
};

constexpr Flag kRampUp[] = {
    {"--rampup-batch-size", "list"},
    {"--step-batch-size-schedule", "text"},
    {"--decrease-batch-size-if-needed"},
};

constexpr Flag kEvaluationBatches[] = {
    {"--eval-global-batch-size", "integer"},
    {"--eval-micro-batch-size", "integer"},
};

constexpr Flag kSkippedSteps[] = {
    {"--iterations-to-skip", "list"},
    {"--result-rejected-tracker-filename", "text"},
};

constexpr Flag kFaultInjection[] = {
    {"--error-injection-rate", "integer", "0"},  {"--error-injection-type", "text", "transient_error"},
    {"--fault-injector-ranks", "text"},          {"--fault-injector-num-ranks", "integer"},
    {"--fault-injector-fault-types", "text"},    {"--fault-injector-fault-probabilities", "text"},
    {"--fault-injector-fault-delay", "number"},  {"--fault-injector-delay-start-iteration", "integer"},
    {"--fault-injector-mtti-seconds", "number"}, {"--fault-injector-offset-seconds", "number"},
    {"--fault-injector-seed", "integer"},
};

constexpr Flag kOldBatches[] = {
    {"--batch-size", "integer"},
    {"--indexer-batch-size", "integer", "128"},
};

constexpr Flag kLateEvaluation[] = {
    {"--start-eval-at-iter", "integer"},
};

constexpr Flag kLocalCheckpoints[] = {
    {"--non-persistent-save-interval", "integer"},
    {"--non-persistent-ckpt-type", "text"},
    {"--non-persistent-global-ckpt-dir", "text"},
    {"--non-persistent-local-ckpt-dir", "text"},
    {"--non-persistent-local-ckpt-algo", "text", "fully_parallel"},
    {"--replication"},
    {"--replication-jump", "integer"},
    {"--replication-factor", "integer", "2"},
};

constexpr Flag kDumps[] = {
    {"--save-params-interval", "integer"},
    {"--save-activations-interval", "integer"},
    {"--save-wgrads-interval", "integer"},
    {"--save-dgrads-interval", "integer"},
};

constexpr Flag kConversion[] = {
    {"--ckpt-convert-format", "text"},
    {"--ckpt-convert-save", "text"},
    {"--ckpt-convert-update-legacy-dist-opt-format"},
};

constexpr Flag kMainParams[] = {
    {"--load-main-params-from-ckpt"},
};

constexpr Flag kDistillation[] = {
    {"--logits-save-dtype", "text", "fp16"},
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
    {"--export-kd-cfg", "text"},
    {"--export-kd-teacher-load", "text"},
    {"--export-kd-teacher-model-config", "text"},
    {"--export-kd-teacher-ckpt-format", "text"},
    {"--distillation"},
    {"--distill-coeff", "number", "0.0"},
    {"--distill-only"},
};

constexpr Flag kMetadata[] = {
    {"--tokenizer-metadata", "text", "", "metadata_path"},
};

constexpr Flag kAddedTokens[] = {
    {"--tokenizer-special-tokens", "list", "", "special_tokens"},
    {"--tokenizer-sentencepiece-legacy"},
};

constexpr Flag kWhiteSpace[] = {
    {"--no-tokenizer-sentencepiece-ignore-extra-whitespaces "
     "--disable-tokenizer-sentencepiece-ignore-extra-whitespaces",
     "off", "", "tokenizer_sentencepiece_ignore_extra_whitespaces"},
};

constexpr Flag kSlowTokenizers[] = {
    {"--tokenizer-hf-no-use-fast"},
};

constexpr Flag kNullIds[] = {
    {"--null-tokenizer-eod-id", "integer"},
    {"--null-tokenizer-pad-id", "integer", "-1"},
};

constexpr Flag kMasking[] = {
    {"--dataloader-inter-document-masking"},
};

constexpr Flag kReading[] = {
    {"--phase-transition-iterations", "text"},
    {"--sample-rate", "number", "1.0"},
    {"--object-storage-cache-path", "text"},
};

}  // namespace

void add_refused_training(Table& t) {
  t.refuse("Muon optimizer", "remove it; --optimizer is adam or sgd", kMuon);
  t.refuse("Lion optimizer", "remove it; --optimizer is adam or sgd", kLion);
  t.refuse("optimizer states or gradients of low precision",
           "remove it; gradients, main parameters and states are fp32", kStateDtypes);
  t.refuse("dump of the parameter groups", "remove it; biases and norms have none", kDecayChoice);
  t.refuse("loss or logits in 16 bits", "remove it; the loss is computed in fp32", kLogitDtype);
  t.refuse("old spelling of warm-up", "use --lr-warmup-fraction, --lr-warmup-iters or --lr-warmup-samples",
           kWarmup);
  t.refuse("separate learning rates for the embedding and the output layer",
           "remove it; --lr and --min-lr hold for all weights", kDecoupled);
  t.refuse("frozen layers", "remove it; all weights are trained", kFrozen);
  t.refuse("batch-size schedule", "remove it; --global-batch-size holds for every step", kRampUp);
  t.refuse("evaluation batch sizes of their own",
           "remove it; evaluation uses --global-batch-size and --micro-batch-size", kEvaluationBatches);
  t.refuse("skipped iterations", "remove it; every step is taken", kSkippedSteps);
  t.refuse("fault injection", "remove it", kFaultInjection);
  t.refuse("old spelling of batch sizes", "use --micro-batch-size and --global-batch-size", kOldBatches);
  t.refuse("first step of evaluations", "remove it; --eval-interval sets the steps with one",
           kLateEvaluation);
  t.refuse("local (non-persistent) or replicated checkpoints",
           "remove it; --save-interval sets how often a checkpoint is saved", kLocalCheckpoints);
  t.refuse("dumps of parameters, gradients or activations", "remove it; step folders hold the parameters",
           kDumps);
  t.refuse("conversion of checkpoints by flags of a run", "use `colonnade checkpoint`", kConversion);
  t.refuse("main parameters read in place of the optimizer",
           "remove it; --load reads them with the optimizer", kMainParams);
  t.refuse("distillation", "remove it; the loss is that of the data", kDistillation);
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
  t.refuse(
      "mask of documents by their lengths",
      "write --reset-attention-mask --reset-position-ids, which do the same where each document ends with an end of document (--append-eod) and has none inside",
      kMasking);
  t.refuse("sampling rates, phases or object storage of data",
           "remove it; --data-path takes prefixes of .bin/.idx files", kReading);
}

}  // namespace colonnade::config
