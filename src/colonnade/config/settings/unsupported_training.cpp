// Megatron flags on training, optimizer, data and checkpoints that are not supported, by missing feature.
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

constexpr Flag kParameterGroupDump[] = {
    {"--dump-param-to-param-group-map", "text"},
};

constexpr Flag kLogitDtype[] = {
    {"--fp16-lm-cross-entropy"},
    {"--output-logit-dtype", "text", "", "logit_dtype"},
};

constexpr Flag kOldWarmupFlags[] = {
    {"--warmup", "integer"},
};

constexpr Flag kFrozen[] = {
    {"--freeze-all-layers"},
};

constexpr Flag kSkippedSteps[] = {
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

constexpr Flag kOldBatchFlags[] = {
    {"--batch-size", "integer"},
    {"--indexer-batch-size", "integer", "128"},
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

constexpr Flag kTensorDumps[] = {
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

constexpr Flag kDataSources[] = {
    {"--phase-transition-iterations", "text"},
    {"--sample-rate", "number", "1.0"},
    {"--object-storage-cache-path", "text"},
};

}  // namespace

void add_unsupported_training(Table& t) {
  t.unsupported("dump of the parameter groups", "remove it; biases and norms have no weight decay",
                kParameterGroupDump);
  t.unsupported("16-bit loss or logits", "remove it; the loss is computed in fp32", kLogitDtype);
  t.unsupported("old warm-up flag", "use --lr-warmup-fraction, --lr-warmup-iters or --lr-warmup-samples",
                kOldWarmupFlags);
  t.unsupported("runs without trained parameters",
                "remove it; --freeze-parameters freezes some of them, and `colonnade evaluate` trains none",
                kFrozen);
  t.unsupported("file of rejected results", "remove it; --iterations-to-skip lists iterations",
                kSkippedSteps);
  t.unsupported("fault injection", "remove it", kFaultInjection);
  t.unsupported("old batch-size flags", "use --micro-batch-size and --global-batch-size", kOldBatchFlags);
  t.unsupported("local (non-persistent) or replicated checkpoints",
                "remove it; --save-interval sets the interval of persistent checkpoints", kLocalCheckpoints);
  t.unsupported("dumps of parameters, gradients or activations",
                "remove it; step folders contain the parameters", kTensorDumps);
  t.unsupported("checkpoint conversion by flags of a run", "use `colonnade checkpoint`", kConversion);
  t.unsupported("loading of main parameters without the optimizer",
                "remove it; --load restores them with the optimizer", kMainParams);
  t.unsupported("distillation", "remove it; the loss is computed from the data", kDistillation);
  t.unsupported("tokenizer metadata file", "remove it; --tokenizer-type determines the file format",
                kMetadata);
  t.unsupported("special tokens other than those of the tokenizer's files",
                "add them to tokenizer_config.json, or train the .model with them", kAddedTokens);
  t.unsupported("whitespace handling that differs from the SentencePiece model's",
                "use a model that keeps whitespace, as `tokenizer train` does", kWhiteSpace);
  t.unsupported("slow tokenizers of Transformers", "remove it; the folder's tokenizer.json is used",
                kSlowTokenizers);
  t.unsupported(
      "configurable special ids of NullTokenizer",
      "remove it; the last id below --vocab-size is the end-of-document token, and there is no pad token",
      kNullIds);
  t.unsupported("data sampling rates, phases or object storage",
                "remove it; --data-path accepts prefixes of .bin/.idx files", kDataSources);
}

}  // namespace colonnade::config
