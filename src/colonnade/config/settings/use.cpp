// Settings of each group that are read by commands other than training.
#include "colonnade/config/use.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "colonnade/base/error.h"

namespace colonnade::config {

namespace {

/// Uses that read a setting; kTrain reads all.
struct Readers {
  bool data = false, tokens = false, generate = false;
  bool samples = false;  ///< kInspect
};

constexpr Readers kNone{};
constexpr Readers kAll{.data = true, .tokens = true, .generate = true, .samples = true};
constexpr Readers kCompute{.data = true, .tokens = true, .generate = true};
constexpr Readers kEvaluate{.data = true, .tokens = true};
constexpr Readers kSamples{.data = true, .samples = true};
constexpr Readers kInspected{.samples = true};
constexpr Readers kData{.data = true};

struct Row {
  std::string_view name;
  Readers readers;
};

/// Readers of the settings of each group but those that define the model.
constexpr Row kGroups[] = {
    {"run", kAll},
    {"initial values and precision", kNone},
    {"parallel sizes", kCompute},
    {"pipeline", kCompute},
    {"recomputation", kNone},
    {"data parallelism", kNone},
    {"training", kNone},
    {"validation", kNone},
    {"optimizer", kNone},
    {"learning rate and weight decay", kNone},
    {"data", kSamples},
    {"fill-in-the-middle", kSamples},
    {"tokenizer", kAll},
    {"checkpoints", kNone},
    {"logging", kNone},
    {"profiling", kNone},
};

/// Readers of the settings that differ from their group, by key.
constexpr Row kExceptions[] = {
    {"bert_binary_head", kAll},
    {"seed", {.data = true, .generate = true, .samples = true}},
    {"params_dtype", kCompute},
    {"bf16", kCompute},
    {"fp16", kCompute},
    {"fp32_residual_connection", kCompute},
    {"sequence_parallel", kNone},
    {"cp_comm_type", kNone},
    {"hierarchical_context_parallel_sizes", kNone},
    {"hybrid_context_parallel", kNone},
    {"max_seqlen_per_dp_cp_rank", kNone},
    {"pipeline_schedule", kNone},
    {"delay_wgrad_compute", kNone},
    {"overlap_moe_expert_parallel_comm", kNone},
    {"microbatch_group_size_per_virtual_pipeline_stage", kNone},
    {"distributed_backend", kCompute},
    {"distributed_timeout_minutes", kCompute},
    {"device", kCompute},
    {"micro_batch_size", kEvaluate},
    {"global_batch_size", kSamples},
    {"step_batch_size_schedule", kInspected},
    {"rampup_batch_size", kInspected},
    {"seq_length", kSamples},
    {"decoder_seq_length", kSamples},
    {"train_iters", kInspected},
    {"train_samples", kInspected},
    {"eval_iters", kSamples},
    {"eval_interval", kInspected},
    {"start_eval_at_iter", kInspected},
    {"eval_global_batch_size", kInspected},
    {"skip_train", kInspected},
    {"full_validation", kInspected},
    {"multiple_validation_sets", kInspected},
    {"dataloader_type", kInspected},
    {"num_workers", kNone},
    {"eod_mask_loss", kData},
    {"allow_ambiguous_pad_tokens", kData},
    {"chat_template", kSamples},
    {"load", kAll},
    {"pretrained_checkpoint", kAll},
    {"ckpt_step", kAll},
    {"finetune", kInspected},
    {"exit_on_missing_checkpoint", kAll},
    {"use_checkpoint_args", kAll},
    {"use_tokenizer_model_from_checkpoint_args", kAll},
    {"logging_level", kCompute},
};

const Readers& readers_of(const Setting& setting) {
  const Row* exception = std::ranges::find(kExceptions, setting.key, &Row::name);
  if (exception != std::end(kExceptions)) return exception->readers;
  if (setting.training_only) return kNone;
  if (setting.defines_model) return kCompute;  // read to compare them with the checkpoint's
  const Row* group = std::ranges::find(kGroups, setting.group, &Row::name);
  COL_CHECK(group != std::end(kGroups), "{}: its group must have a row in settings/use.cpp; got '{}'; add it",
            setting.flag, setting.group);
  return group->readers;
}

}  // namespace

bool reads(Use use, const Setting& setting) {
  if (use == Use::kTrain || setting.cls != Class::kImplemented) return true;
  const Readers& readers = readers_of(setting);
  switch (use) {
    case Use::kEvaluateData:
      return readers.data;
    case Use::kEvaluateTokens:
      return readers.tokens;
    case Use::kGenerate:
      return readers.generate;
    case Use::kInspect:
      return readers.samples;
    case Use::kTrain:
      break;
  }
  return true;
}

}  // namespace colonnade::config
